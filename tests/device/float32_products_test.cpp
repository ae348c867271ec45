#include "device/float32_products.h"

#include <gtest/gtest.h>

#include <tuple>

namespace kindling {
namespace {

using B = at::Float32Backend;
using P = at::Float32Precision;

auto float32_settings() {
  const at::Context& context = at::globalContext();
  return std::tuple(context.float32MatmulPrecision(),
                    context.float32Precision(B::CUDA, at::Float32Op::MATMUL),
                    context.float32Precision(B::MKLDNN, at::Float32Op::MATMUL), context.allowTF32CuBLAS());
}

auto of_backends() { return std::tuple(float32_products_on(at::kCUDA), float32_products_on(at::kCPU)); }

TEST(Float32Products, AllowTf32OnlyWhileItIsAsked) {
  const auto before = float32_settings();
  EXPECT_EQ(float32_matmul_precision(), "highest");
  {
    const Float32Products products("high");
    EXPECT_TRUE(at::globalContext().allowTF32CuBLAS());
    EXPECT_EQ(float32_matmul_precision(), "high");
    {
      const Float32Products exact("highest");
      EXPECT_FALSE(at::globalContext().allowTF32CuBLAS());
      EXPECT_EQ(float32_matmul_precision(), "highest");
    }
    EXPECT_TRUE(at::globalContext().allowTF32CuBLAS()) << "one still needs it";
  }
  EXPECT_EQ(float32_settings(), before);
}

TEST(Float32Products, MeanBfloat16OnCpusAndTf32OnCardsAtMedium) {
  const auto before = float32_settings();
  {
    const Float32Products products("medium");
    EXPECT_EQ(of_backends(), std::tuple(P::TF32, P::BF16));
    EXPECT_EQ(at::globalContext().float32MatmulPrecision(), at::Float32MatmulPrecision::MEDIUM);
    const Float32Products nothing(std::nullopt);
    EXPECT_EQ(float32_matmul_precision(), "medium");
    EXPECT_TRUE(shortens_float32_products(at::kCPU));
    EXPECT_TRUE(shortens_float32_products(at::kCUDA));
  }
  EXPECT_EQ(float32_settings(), before);
  EXPECT_FALSE(shortens_float32_products(at::kCPU));
}

// LibTorch's own getter of the word throws in between.
TEST(Float32Products, ComeBackWhereBackendsHaveSettingsOfTheirOwn) {
  at::Context& context = at::globalContext();
  for (const char* word : {"highest", "high", "medium"}) {
    context.setFloat32MatmulPrecision(word);
    context.setFloat32Precision(B::CUDA, at::Float32Op::MATMUL, P::IEEE);
    context.setFloat32Precision(B::MKLDNN, at::Float32Op::MATMUL, P::BF16);
    const auto before = of_backends();
    EXPECT_EQ(float32_matmul_precision(), "mixed");
    {
      const Float32Products products("high");
      EXPECT_EQ(of_backends(), std::tuple(P::TF32, P::TF32));
    }
    EXPECT_EQ(of_backends(), before);
    context.setFloat32Precision(B::MKLDNN, at::Float32Op::MATMUL, P::IEEE);
    EXPECT_EQ(static_cast<int>(context.float32MatmulPrecision()), word == std::string("highest") ? 0
                                                                  : word == std::string("high")  ? 1
                                                                                                 : 2);
  }
  context.setFloat32MatmulPrecision("highest");
}

}  // namespace
}  // namespace kindling
