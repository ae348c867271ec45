#include "graph/fast_node.h"

#include <ATen/Context.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/sum_cpu_dispatch.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "device/float32_products.h"
#include "graph/fast_kernels.h"
#include "graph/loop_node.h"
#include "graph/pooling_node.h"
#include "graph/relu_node.h"

namespace kindling {
namespace {

using NodePtr = std::unique_ptr<ReplayNode>;

using Arguments = torch::jit::Stack;

bool is_dense(const at::Tensor& tensor) {
  return tensor.defined() && tensor.scalar_type() == at::kFloat && tensor.is_contiguous() &&
         tensor.numel() > 0;
}

bool is_small(const at::Tensor& tensor) { return is_dense(tensor) && tensor.numel() <= kMostElements; }

bool is_number(const c10::IValue& value, double number) {
  return value.isScalar() && value.toScalar().toDouble() == number;
}

NodePtr relu(const Arguments& in, const at::Tensor& out) {
  const at::Tensor& x = in[0].toTensor();
  if (!is_small(x) || !is_small(out)) return nullptr;
  return loop_node([x = Elements(x), out = Elements(out), count = out.numel()] {
    fast::relu(x.data(), out.data(), count);
  });
}

NodePtr relu_backward(const Arguments& in, const at::Tensor& out) {
  if (auto of_planes = relu_backward_node(in, out)) return of_planes;
  const at::Tensor &gradient = in[0].toTensor(), &x = in[1].toTensor();
  if (!is_small(gradient) || !is_small(x) || !is_small(out) || gradient.sizes() != x.sizes() ||
      !is_number(in[2], 0))
    return nullptr;
  return loop_node(
      [gradient = Elements(gradient), x = Elements(x), out = Elements(out), count = out.numel()] {
        fast::relu_backward(gradient.data(), x.data(), out.data(), count);
      });
}

// Numbers whose sums depend on their order, the same in each process.
at::Tensor uneven_numbers(at::IntArrayRef sizes, std::uint32_t seed) {
  at::Tensor numbers = at::empty(sizes, at::kFloat);
  std::uint32_t state = seed;
  for (std::int64_t i = 0; i < numbers.numel(); ++i) {
    state = state * 1664525 + 1013904223;
    numbers.mutable_data_ptr<float>()[i] = static_cast<float>(state) / 4e9F - 0.3F;
  }
  return numbers;
}

// Sums of a few numbers may be the same in two orders by chance, but not those of many such matrices.
bool sums_in(std::int64_t group, std::int64_t rows, std::int64_t columns) {
  constexpr std::uint32_t kTries = 16;
  at::Tensor own = at::empty({columns}, at::kFloat);
  for (std::uint32_t seed = 1; seed <= kTries; ++seed) {
    const at::Tensor x = uneven_numbers({rows, columns}, seed);
    fast::sum_rows(x.const_data_ptr<float>(), own.mutable_data_ptr<float>(), rows, columns, group);
    if (!own.equal(at::cpu::sum(x, at::IntArrayRef{0}))) return false;
  }
  return true;
}

// In which groups LibTorch sums columns, found out by what it gives; nothing where it does something else.
std::optional<std::int64_t> group_of(std::int64_t rows, std::int64_t columns) {
  for (const std::int64_t group : {32, 64, 4})
    if (sums_in(group, rows, columns)) return group;
  return std::nullopt;
}

NodePtr sum_rows(const Arguments& in, const at::Tensor& out) {
  const at::Tensor& x = in[0].toTensor();
  if (!is_small(x) || !is_small(out) || x.dim() != 2 || x.size(1) < 2 || out.numel() != x.size(1))
    return nullptr;
  if (!in[1].isIntList() || in[1].toIntVector() != std::vector<std::int64_t>{0} || !in[3].isNone())
    return nullptr;
  const auto group = group_of(x.size(0), x.size(1));
  if (!group) return nullptr;
  return loop_node([x = Elements(x), out = Elements(out), rows = x.size(0), columns = x.size(1),
                    group = *group] { fast::sum_rows(x.data(), out.data(), rows, columns, group); });
}

// The BLAS call that LibTorch makes for result = m1·m2, whose matrices may lie row by row or column by
// column; nothing where one of them would have to be copied.
struct Product {
  fast::Gemm shape;
  bool is_swapped;  // it is m2ᵀ·m1ᵀ
};
std::optional<Product> product_of(at::Tensor a, at::Tensor b, const at::Tensor& c, bool adds) {
  const auto fits = [](std::int64_t stride, std::int64_t size) {
    return stride >= std::max<std::int64_t>(1, size);
  };
  const bool is_by_columns = c.stride(0) == 1 && (c.size(1) == 1 || fits(c.stride(1), c.size(0)));
  if (!is_by_columns && !(c.stride(1) == 1 && (c.size(0) == 1 || fits(c.stride(0), c.size(1)))))
    return std::nullopt;
  const bool swaps = !is_by_columns;
  if (swaps) std::swap(a, b);
  const int inner = swaps ? 1 : 0, outer = swaps ? 0 : 1;
  const std::int64_t m = c.size(inner), n = c.size(outer), k = a.size(outer);
  if (std::max({m, n, k}) > std::numeric_limits<int>::max()) return std::nullopt;
  const auto transposed = [&](const at::Tensor& matrix, std::int64_t rows,
                              std::int64_t columns) -> std::optional<bool> {
    if (matrix.stride(inner) == 1 && fits(matrix.stride(outer), rows)) return false;
    if (matrix.stride(outer) == 1 && fits(matrix.stride(inner), columns)) return true;
    return std::nullopt;
  };
  const auto transpose_a = transposed(a, m, k), transpose_b = transposed(b, k, n);
  if (!transpose_a || !transpose_b) return std::nullopt;
  const auto leading = [&](const at::Tensor& matrix, bool is_transposed) {
    return matrix.stride(is_transposed ? inner : outer);
  };
  std::int64_t lda = leading(a, *transpose_a), ldb = leading(b, *transpose_b), ldc = c.stride(outer);
  // Of matrices of one row or column the stride says nothing.
  if (n == 1) ldc = m;
  if (*transpose_a ? m == 1 : k == 1) lda = *transpose_a ? k : m;
  if (*transpose_b ? k == 1 : n == 1) ldb = *transpose_b ? n : k;
  return Product{.shape = {.transpose_a = *transpose_a,
                           .transpose_b = *transpose_b,
                           .m = static_cast<int>(m),
                           .n = static_cast<int>(n),
                           .k = static_cast<int>(k),
                           .lda = static_cast<int>(lda),
                           .ldb = static_cast<int>(ldb),
                           .ldc = static_cast<int>(ldc),
                           .beta = adds ? 1.F : 0.F},
                 .is_swapped = swaps};
}

bool is_matrix(const at::Tensor& tensor) {
  return tensor.defined() && tensor.dim() == 2 && tensor.scalar_type() == at::kFloat && tensor.numel() > 0;
}

NodePtr product(const at::Tensor& m1, const at::Tensor& m2, const at::Tensor& bias, const at::Tensor& out) {
  // LibTorch then asks another library, which may round what is multiplied.
  if (shortens_float32_products(at::kCPU)) return nullptr;
  if (!fast::has_gemm() || !is_matrix(m1) || !is_matrix(m2) || !is_matrix(out)) return nullptr;
  const auto found = product_of(m1, m2, out, bias.defined());
  if (!found) return nullptr;
  const Elements a(found->is_swapped ? m2 : m1), b(found->is_swapped ? m1 : m2), c(out);
  if (!bias.defined())
    return loop_node([a, b, c, shape = found->shape] { fast::gemm(shape, a.data(), b.data(), c.data()); });
  if (!is_dense(bias) || bias.dim() != 1 || bias.size(0) != out.size(1) || !out.is_contiguous())
    return nullptr;
  return loop_node(
      [a, b, c, shape = found->shape, bias = Elements(bias), rows = out.size(0), columns = out.size(1)] {
        fast::fill_rows(bias.data(), c.data(), rows, columns);
        fast::gemm(shape, a.data(), b.data(), c.data());
      });
}

NodePtr mm(const Arguments& in, const at::Tensor& out) {
  return product(in[0].toTensor(), in[1].toTensor(), {}, out);
}

NodePtr addmm(const Arguments& in, const at::Tensor& out) {
  if (!is_number(in[3], 1) || !is_number(in[4], 1)) return nullptr;
  return product(in[1].toTensor(), in[2].toTensor(), in[0].toTensor(), out);
}

NodePtr mse_loss(const Arguments& in, const at::Tensor& out) {
  const at::Tensor &x = in[0].toTensor(), &y = in[1].toTensor();
  if (!is_small(x) || !is_small(y) || x.sizes() != y.sizes() || in[2].toInt() != at::Reduction::Mean)
    return nullptr;
  // LibTorch sums all of them and divides.
  return loop_node([x = Elements(x), y = Elements(y), result = Elements(out), to = at::Tensor(out),
                    squares = at::empty_like(x)]() mutable {
    fast::squared_difference(x.data(), y.data(), squares.mutable_data_ptr<float>(), squares.numel());
    at::cpu::sum_out(to, squares, at::OptionalIntArrayRef());
    *result.data() /= static_cast<float>(squares.numel());
  });
}

NodePtr mse_loss_backward(const Arguments& in, const at::Tensor& out) {
  const at::Tensor &gradient = in[0].toTensor(), &x = in[1].toTensor(), &y = in[2].toTensor();
  if (!is_small(gradient) || gradient.numel() != 1 || !is_small(x) || !is_small(y) || !is_small(out) ||
      x.sizes() != y.sizes() || in[3].toInt() != at::Reduction::Mean)
    return nullptr;
  const auto count = out.numel();
  return loop_node([gradient = Elements(gradient), x = Elements(x), y = Elements(y), out = Elements(out),
                    count, scale = static_cast<float>(2. / static_cast<double>(count))] {
    fast::squared_difference_backward(scale, *gradient.data(), x.data(), y.data(), out.data(), count);
  });
}

using Results = std::vector<at::Tensor>;
using Make = NodePtr (*)(const c10::OperatorHandle&, const Arguments&, const Results&);

template <NodePtr (*make)(const Arguments&, const at::Tensor&)>
NodePtr of_one_result(const c10::OperatorHandle&, const Arguments& in, const Results& results) {
  return results.size() == 1 && results.front().defined() ? make(in, results.front()) : nullptr;
}

}  // namespace

NodePtr fast_node(const c10::OperatorHandle& op, const Arguments& arguments,
                  const std::vector<at::Tensor>& results) {
  static const std::map<std::pair<std::string, std::string>, Make> all{
      {{"aten::relu", ""}, of_one_result<relu>},
      {{"aten::threshold_backward", ""}, of_one_result<relu_backward>},
      {{"aten::sum", "dim_IntList"}, of_one_result<sum_rows>},
      {{"aten::mm", ""}, of_one_result<mm>},
      {{"aten::addmm", ""}, of_one_result<addmm>},
      {{"aten::mse_loss", ""}, of_one_result<mse_loss>},
      {{"aten::mse_loss_backward", ""}, of_one_result<mse_loss_backward>},
      {{"aten::max_pool2d_with_indices", ""}, max_pool_node},
      {{"aten::max_pool2d_with_indices_backward", ""}, max_pool_backward_node}};
  const auto found = all.find({op.operator_name().name, op.operator_name().overload_name});
  return found == all.end() ? nullptr : found->second(op, arguments, results);
}

}  // namespace kindling
