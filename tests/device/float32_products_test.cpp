#include "device/float32_products.h"

#include <gtest/gtest.h>

#include <tuple>

namespace kindling {
namespace {

auto float32_settings() {
  using B = at::Float32Backend;
  const at::Context& context = at::globalContext();
  return std::tuple(context.float32MatmulPrecision(),
                    context.float32Precision(B::CUDA, at::Float32Op::MATMUL),
                    context.float32Precision(B::MKLDNN, at::Float32Op::MATMUL), context.allowTF32CuBLAS());
}

TEST(Float32Products, AllowTf32OnlyWhileItIsAsked) {
  const auto before = float32_settings();
  {
    const Float32Products products(Float32Products::Precision::tf32);
    EXPECT_TRUE(at::globalContext().allowTF32CuBLAS());
    const Float32Products exact(Float32Products::Precision::full);
    EXPECT_FALSE(at::globalContext().allowTF32CuBLAS());
  }
  EXPECT_EQ(float32_settings(), before);
}

}  // namespace
}  // namespace kindling
