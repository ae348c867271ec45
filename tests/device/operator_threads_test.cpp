#include "device/operator_threads.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

namespace kindling {
namespace {

TEST(OperatorThreads, ComeBackAtTheEnd) {
  const int before = at::get_num_threads();
  {
    const OperatorThreads more(before + 2);
    EXPECT_EQ(at::get_num_threads(), before + 2);
  }
  EXPECT_EQ(at::get_num_threads(), before);
}

}  // namespace
}  // namespace kindling
