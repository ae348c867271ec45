// The process contains an sgemm_ other than LibTorch's: that of the program or of a preloaded library.
#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "short_fit.h"

namespace kindling {
namespace {

bool have_same_bits(const at::Tensor& one, const at::Tensor& other) {
  return one.sizes() == other.sizes() &&
         std::memcmp(one.const_data_ptr(), other.const_data_ptr(), one.nbytes()) == 0;
}

int num_hostile_calls() {
  return reinterpret_cast<int (*)()>(dlsym(RTLD_DEFAULT, "num_calls_of_hostile_sgemm"))();
}

TEST(ForeignBlas, IsWhatTheProcessFindsFirst) {
  ASSERT_NE(dlsym(RTLD_DEFAULT, "num_calls_of_hostile_sgemm"), nullptr);
  Dl_info hostile{}, counter{};
  ASSERT_NE(dladdr(dlsym(RTLD_DEFAULT, "sgemm_"), &hostile), 0);
  ASSERT_NE(dladdr(dlsym(RTLD_DEFAULT, "num_calls_of_hostile_sgemm"), &counter), 0);
  EXPECT_EQ(hostile.dli_fbase, counter.dli_fbase);
}

TEST(ForeignBlas, IsNotCalledByReplayedSteps) {
  const ShortFit eager = short_fit("off", LogLevel::debug), replayed = short_fit("on", LogLevel::debug);
  EXPECT_EQ(eager.log, "");
  EXPECT_EQ(replayed.log.find("steps are not captured"), std::string::npos) << replayed.log;
  EXPECT_EQ(num_hostile_calls(), 0);
  ASSERT_EQ(replayed.weights.size(), eager.weights.size());
  for (std::size_t i = 0; i < eager.weights.size(); ++i)
    EXPECT_TRUE(have_same_bits(replayed.weights[i], eager.weights[i])) << "parameter " << i;
}

}  // namespace
}  // namespace kindling
