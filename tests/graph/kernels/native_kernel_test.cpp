// Native kernels against LibTorch's operators: bit-identical results.
#include "graph/kernels/native_kernel.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <limits>
#include <optional>

namespace kindling {
namespace {

struct Operator {
  const char *name, *overload;
};

bool same_bits(const at::Tensor& one, const at::Tensor& other) {
  const at::Tensor a = one.contiguous(), b = other.contiguous();
  return a.sizes() == b.sizes() && std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) == 0;
}

// Returns what the kernel computes into memory of other values; nothing if there is no kernel.
std::optional<at::Tensor> by_native_kernel(const Operator& op, const torch::jit::Stack& arguments,
                                           const at::Tensor& expected) {
  at::Tensor out = at::empty_like(expected);
  if (out.numel() > 0) std::memset(out.mutable_data_ptr(), 0xFF, out.nbytes());  // NaN, or -1
  const auto node =
      native_kernel(c10::Dispatcher::singleton().findSchemaOrThrow(op.name, op.overload), arguments, {out});
  if (node == nullptr) return std::nullopt;
  node->run();
  return out;
}

// Expects results bit-identical to the operator's. Returns whether there is a kernel.
bool gives_bits_of(const Operator& op, const torch::jit::Stack& arguments) {
  torch::jit::Stack stack = arguments;
  c10::Dispatcher::singleton().findSchemaOrThrow(op.name, op.overload).callBoxed(stack);
  const at::Tensor expected = stack.front().toTensor();
  const auto found = by_native_kernel(op, arguments, expected);
  if (found) {
    EXPECT_TRUE(same_bits(*found, expected)) << *found << "\n" << expected;
  }
  return found.has_value();
}

// Some numbers of each kind, at positions that depend on the seed.
at::Tensor with_special_values(at::Tensor numbers, std::int64_t seed) {
  using Limits = std::numeric_limits<float>;
  constexpr std::array kSpecial{0.F,
                                -0.F,
                                Limits::infinity(),
                                -Limits::infinity(),
                                Limits::max(),
                                Limits::lowest(),
                                Limits::denorm_min(),
                                -Limits::denorm_min(),
                                Limits::min(),
                                Limits::quiet_NaN(),
                                -Limits::quiet_NaN()};
  float* const data = numbers.mutable_data_ptr<float>();
  for (std::int64_t i = seed % 3; i < numbers.numel(); i += 2 + (seed + i) % 3)
    data[i] = kSpecial[static_cast<std::size_t>(seed + i * 7) % kSpecial.size()];
  return numbers;
}

// Around the widths of registers and the size beyond which LibTorch may use threads.
constexpr std::array<std::int64_t, 19> kCounts{1,  2,  3,  7,  8,   9,    15,   16,    17,   31,
                                               32, 33, 63, 64, 100, 1000, 1023, 32766, 32767};

constexpr Operator kRelu{"aten::relu", ""}, kReluBackward{"aten::threshold_backward", ""},
    kSum{"aten::sum", "dim_IntList"}, kMm{"aten::mm", ""}, kAddmm{"aten::addmm", ""},
    kMse{"aten::mse_loss", ""}, kMseBackward{"aten::mse_loss_backward", ""};

TEST(NativeKernel, ComputesReluBitIdentically) {
  for (const std::int64_t count : kCounts) {
    SCOPED_TRACE(count);
    EXPECT_TRUE(gives_bits_of(kRelu, {at::randn({count})}));
    EXPECT_TRUE(gives_bits_of(kRelu, {with_special_values(at::randn({count}), count)}));
  }
}

TEST(NativeKernel, ComputesReluBackwardBitIdentically) {
  for (const std::int64_t count : kCounts) {
    SCOPED_TRACE(count);
    EXPECT_TRUE(gives_bits_of(kReluBackward, {at::randn({count}), at::randn({count}), 0}));
    EXPECT_TRUE(gives_bits_of(kReluBackward, {with_special_values(at::randn({count}), count),
                                              with_special_values(at::randn({count}), count + 1), 0}));
  }
}

TEST(NativeKernel, CountsRightAnswersLikeLibTorch) {
  constexpr Operator kArgmax{"aten::argmax", ""}, kEqual{"aten::eq", "Tensor"},
      kNotEqual{"aten::ne", "Scalar"}, kCount{"aten::sum", ""};
  for (const std::int64_t rows : kCounts)
    for (const std::int64_t columns : {1, 2, 10, 33}) {
      if (rows * columns > 32767) continue;
      SCOPED_TRACE(std::to_string(rows) + " x " + std::to_string(columns));
      const at::Tensor scores = at::randint(-3, 3, {rows, columns}, at::kFloat);
      for (const at::Tensor& x : {scores, with_special_values(at::randn({rows, columns}), rows + columns)}) {
        EXPECT_TRUE(gives_bits_of(kArgmax, {x, 1, false}));
        EXPECT_TRUE(gives_bits_of(kArgmax, {x, -1, true}));
      }
      const at::Tensor labels = at::randint(-1, columns, {rows}, at::kLong), classes = scores.argmax(1);
      EXPECT_TRUE(gives_bits_of(kEqual, {classes, labels}));
      EXPECT_TRUE(gives_bits_of(kNotEqual, {labels, -1}));
      EXPECT_TRUE(gives_bits_of(kCount, {classes.eq(labels), c10::IValue()}));
    }
  const at::Tensor two = at::ones({2, 2});
  EXPECT_FALSE(gives_bits_of(kArgmax, {two, 0, false}));
  EXPECT_FALSE(gives_bits_of(kArgmax, {two, c10::IValue(), false}));
  EXPECT_FALSE(gives_bits_of(kEqual, {at::ones({2, 2}, at::kLong), at::ones({2}, at::kLong)}));
  EXPECT_FALSE(gives_bits_of(kNotEqual, {at::ones({2}, at::kLong), 0.5}));
  EXPECT_FALSE(gives_bits_of(kCount, {at::ones({2}, at::kLong), c10::IValue()}));
}

torch::jit::Stack sum_of_rows(const at::Tensor& x, bool keepdim = false) {
  return {x, std::vector<std::int64_t>{0}, keepdim, c10::IValue()};
}

TEST(NativeKernel, SumsRowsBitIdentically) {
  int num_sums = 0, num_nodes = 0;
  for (const std::int64_t rows :
       {1, 2, 3, 4, 5, 15, 16, 17, 31, 32, 33, 63, 64, 65, 100, 128, 257, 1000, 4100})
    for (const std::int64_t columns : {2,  3,  4,  7,  8,  9,  10,  15,  16,  17,  31,  32, 33,
                                       47, 48, 63, 64, 65, 96, 100, 127, 128, 130, 200, 512}) {
      if (rows * columns > 32767) continue;
      SCOPED_TRACE(std::to_string(rows) + " x " + std::to_string(columns));
      ++num_sums;
      num_nodes += gives_bits_of(kSum, sum_of_rows(at::randn({rows, columns}))) ? 1 : 0;
      gives_bits_of(kSum, sum_of_rows(at::randn({rows, columns}) * 1e6, /*keepdim=*/true));
    }
  EXPECT_EQ(num_nodes, num_sums);
}

// One kind per column: the sum of two NaNs depends on their order.
TEST(NativeKernel, SumsNonFiniteNumbers) {
  for (const std::int64_t columns : {5, 16, 33, 70}) {
    at::Tensor x = at::randn({20, columns});
    x.select(1, 0).fill_(std::numeric_limits<float>::max());
    x.index_put_({at::tensor(3), at::tensor(1)}, at::tensor(std::numeric_limits<float>::infinity()));
    x.index_put_({at::tensor(19), at::tensor(2)}, at::tensor(std::numeric_limits<float>::quiet_NaN()));
    x.select(1, 3).fill_(-0.F);
    EXPECT_TRUE(gives_bits_of(kSum, sum_of_rows(x))) << columns;
  }
}

// All memory layouts of a matrix of this shape.
std::vector<at::Tensor> matrices(std::int64_t rows, std::int64_t columns) {
  return {at::randn({rows, columns}), at::randn({columns, rows}).t(),
          at::randn({rows, columns + 3}).narrow(1, 2, columns),
          at::randn({columns, rows + 5}).narrow(1, 1, rows).t(),
          at::randn({2 * rows, 2 * columns}).slice(0, 0, 2 * rows, 2).slice(1, 0, 2 * columns, 2)};
}

TEST(NativeKernel, MultipliesMatricesBitIdentically) {
  int num_products = 0, num_nodes = 0;
  for (const std::int64_t m : {1, 2, 5, 16, 33})
    for (const std::int64_t n : {1, 2, 7, 16, 40})
      for (const std::int64_t k : {1, 3, 16, 50}) {
        SCOPED_TRACE(std::to_string(m) + " x " + std::to_string(k) + " x " + std::to_string(n));
        const auto a = matrices(m, k), b = matrices(k, n);
        for (std::size_t i = 0; i < a.size(); ++i)
          for (std::size_t j = 0; j < b.size(); ++j) {
            SCOPED_TRACE(std::to_string(i) + ", " + std::to_string(j));
            const bool is_one = gives_bits_of(kMm, {a[i], b[j]});
            EXPECT_EQ(gives_bits_of(kAddmm, {at::randn({n}), a[i], b[j], 1, 1}), is_one);
            if (i == a.size() - 1 || j == b.size() - 1) continue;  // LibTorch copies these
            ++num_products;
            num_nodes += is_one ? 1 : 0;
          }
      }
  EXPECT_EQ(num_nodes, num_products);
}

TEST(NativeKernel, ComputesTheMeanSquaredErrorBitIdentically) {
  constexpr std::int64_t kMean = at::Reduction::Mean;
  for (const std::int64_t count : kCounts) {
    SCOPED_TRACE(count);
    const at::Tensor x = at::randn({count}), y = at::randn({count});
    EXPECT_TRUE(gives_bits_of(kMse, {x, y, kMean}));
    EXPECT_TRUE(gives_bits_of(kMseBackward, {at::full({}, 0.7), x, y, kMean}));
    EXPECT_TRUE(gives_bits_of(kMse, {x * 1e30, y, kMean}));  // infinite
    EXPECT_TRUE(gives_bits_of(kMseBackward, {at::full({}, 1e30), x * 1e30, y, kMean}));
    const at::Tensor strange = with_special_values(x.clone(), count);
    EXPECT_TRUE(gives_bits_of(kMseBackward, {at::full({}, -0.7), strange, y, kMean}));
  }
}

// Unsupported inputs are left to LibTorch.
TEST(NativeKernel, RefusesUnsupportedInputs) {
  EXPECT_FALSE(gives_bits_of(kRelu, {at::randn({32768})}));
  EXPECT_FALSE(gives_bits_of(kRelu, {at::randn({8}, at::kDouble)}));
  EXPECT_FALSE(gives_bits_of(kRelu, {at::randn({0})}));
  EXPECT_FALSE(gives_bits_of(kRelu, {at::randn({4, 6}).t()}));
  EXPECT_FALSE(gives_bits_of(kReluBackward, {at::randn({8}), at::randn({8}), 0.5}));
  EXPECT_FALSE(gives_bits_of(kSum, {at::randn({4, 6}), std::vector<std::int64_t>{1}, false, c10::IValue()}));
  EXPECT_FALSE(gives_bits_of(kSum, {at::randn({4, 6}), std::vector<std::int64_t>{0}, false, at::kDouble}));
  EXPECT_FALSE(gives_bits_of(kAddmm, {at::randn({4}), at::randn({2, 3}), at::randn({3, 4}), 1, 2}));
  EXPECT_FALSE(gives_bits_of(kAddmm, {at::randn({2, 4}), at::randn({2, 3}), at::randn({3, 4}), 1, 1}));
  EXPECT_FALSE(gives_bits_of(kMse, {at::randn({4}), at::randn({4}), std::int64_t{at::Reduction::Sum}}));
  EXPECT_FALSE(gives_bits_of(kMse, {at::randn({4}), at::randn({1}), std::int64_t{at::Reduction::Mean}}));
}

}  // namespace
}  // namespace kindling
