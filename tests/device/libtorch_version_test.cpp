#include <gtest/gtest.h>
#include <torch/version.h>

#include "device/libtorch_errors.h"
#include "kindling/base/error.h"
#include "support/scratch.h"

namespace kindling {
namespace {

TEST(LibTorchVersion, TheLoadedOneIsTheOneOfTheHeaders) {
  EXPECT_EQ(loaded_libtorch_version() >> 48, TORCH_ABI_VERSION >> 48);
  EXPECT_NO_THROW(require_matching_libtorch());
}

TEST(LibTorchVersion, AnotherPatchIsTaken) {
  EXPECT_NO_THROW(require_matching_libtorch(TORCH_ABI_VERSION ^ (1ULL << 40)));
}

TEST(LibTorchVersion, AnotherMinorVersionIsRefusedWithBothNamed) {
  const std::string text = error_text<Error>([] { require_matching_libtorch(2ULL << 56 | 99ULL << 48); });
  EXPECT_NE(text.find("LibTorch 2.99 has been loaded"), std::string::npos) << text;
  EXPECT_NE(text.find("expected: LibTorch 2." + std::to_string(TORCH_VERSION_MINOR)), std::string::npos)
      << text;
}

}  // namespace
}  // namespace kindling
