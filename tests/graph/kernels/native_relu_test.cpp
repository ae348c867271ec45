// The backward of ReLU for images with another layout than their gradient: bit-identical results.
#include <ATen/Functions.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cstring>
#include <limits>

#include "graph/kernels/native_kernel.h"

namespace kindling {
namespace {

constexpr auto kSideBySide = at::MemoryFormat::ChannelsLast;

const c10::OperatorHandle& relu_backward() {
  static const auto op = c10::Dispatcher::singleton().findSchemaOrThrow("aten::threshold_backward", "");
  return op;
}

// Expects results bit-identical to LibTorch's; returns whether there is a node.
bool gives_bits_of_relu(const at::Tensor& gradient, const at::Tensor& x, double threshold = 0) {
  const torch::jit::Stack arguments{gradient, x, threshold};
  torch::jit::Stack stack = arguments;
  relu_backward().callBoxed(stack);
  const at::Tensor expected = stack[0].toTensor(), found = at::full_like(expected, 77);
  EXPECT_EQ(found.strides(), expected.strides());
  const auto node = native_kernel(relu_backward(), arguments, {found});
  if (node == nullptr) return false;
  node->run();
  const at::Tensor a = found.contiguous(), b = expected.contiguous();
  EXPECT_EQ(std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()), 0) << x.sizes();
  return true;
}

// A third of them special, as bits of float32 and of bfloat16.
at::Tensor with_strange_images(at::Tensor numbers) {
  constexpr std::array<std::uint32_t, 11> kSpecial{0,          0x80000000, 0x7f800000, 0xff800000,
                                                   0x7fc00000, 0xffc00000, 0x7fd10000, 0xffe30000,
                                                   0x00010000, 0x80010000, 0x7f810000};
  const auto item = static_cast<std::int64_t>(numbers.element_size());
  char* const data = static_cast<char*>(numbers.mutable_data_ptr());
  for (std::int64_t i = 0; i < numbers.numel(); i += 3) {
    const std::uint32_t bits = kSpecial[static_cast<std::size_t>(i / 3) % kSpecial.size()];
    const auto high = static_cast<std::uint16_t>(bits >> 16);
    std::memcpy(data + i * item, item == 4 ? static_cast<const void*>(&bits) : &high,
                static_cast<std::size_t>(item));
  }
  return numbers;
}

TEST(NativeRelu, IsBitIdenticalForImagesWithAnotherLayout) {
  for (const auto dtype : {at::kFloat, at::kBFloat16})
    for (const auto& sizes : {std::array<std::int64_t, 4>{1, 2, 2, 1},
                              {3, 7, 5, 4},
                              {64, 20, 4, 4},
                              {2, 33, 1, 9},
                              {2, 16, 33, 33}}) {
      const at::Tensor gradient = at::randn(sizes).to(dtype),
                       x = at::randn(sizes).to(dtype).contiguous(kSideBySide);
      EXPECT_TRUE(gives_bits_of_relu(gradient, x));
      EXPECT_TRUE(gives_bits_of_relu(gradient, with_strange_images(x.clone())));
      EXPECT_TRUE(gives_bits_of_relu(with_strange_images(gradient.clone()), x));
    }
}

TEST(NativeRelu, RefusesUnsupportedInputs) {
  const at::Tensor gradient = at::randn({2, 3, 4, 5}), x = at::randn({2, 3, 4, 5}).contiguous(kSideBySide);
  EXPECT_TRUE(gives_bits_of_relu(gradient, x));
  EXPECT_FALSE(gives_bits_of_relu(gradient, x, 0.5));
  EXPECT_FALSE(gives_bits_of_relu(gradient.contiguous(kSideBySide), gradient));
  EXPECT_FALSE(gives_bits_of_relu(gradient.contiguous(kSideBySide), x));
  EXPECT_FALSE(gives_bits_of_relu(gradient.transpose(2, 3).contiguous().transpose(2, 3), x));
  EXPECT_FALSE(gives_bits_of_relu(gradient.to(at::kDouble), x.to(at::kDouble)));
  EXPECT_FALSE(gives_bits_of_relu(gradient.to(at::kHalf), x.to(at::kHalf)));
  EXPECT_FALSE(gives_bits_of_relu(gradient.narrow(0, 0, 0), x.narrow(0, 0, 0)));
  EXPECT_FALSE(gives_bits_of_relu(at::randn({1, 3, 1, 5}).expand({2, 3, 4, 5}), x));
  // Both layouts are the same.
  EXPECT_FALSE(gives_bits_of_relu(at::randn({40000, 1, 1, 1}), at::randn({40000, 1, 1, 1})));
  const at::Tensor planes = at::full_like(gradient, 77);
  EXPECT_EQ(native_kernel(relu_backward(), {gradient, x, 0.}, {planes}), nullptr);
}

TEST(NativeRelu, LeavesLargeImagesToMultithreadedLibTorch) {
  const int num_threads = at::get_num_threads();
  const at::Tensor gradient = at::randn({2, 16, 33, 33}),
                   x = at::randn({2, 16, 33, 33}).contiguous(kSideBySide);
  at::set_num_threads(8);
  EXPECT_TRUE(gives_bits_of_relu(gradient, x));
  at::set_num_threads(9);
  EXPECT_FALSE(gives_bits_of_relu(gradient, x));
  at::set_num_threads(num_threads);
}

}  // namespace
}  // namespace kindling
