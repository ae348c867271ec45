#include "graph/kernels/native_kernel.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/sum_cpu_dispatch.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "device/float32_products.h"
#include "graph/kernels/libtorch_sgemm.h"
#include "graph/kernels/loops.h"
#include "graph/nodes/out_operator.h"

namespace kindling {
namespace {

using NodePtr = std::unique_ptr<ReplayNode>;
using Arguments = torch::jit::Stack;
using Results = std::vector<at::Tensor>;

// For larger tensors the cost of dispatch is negligible, and LibTorch may use several threads.
constexpr std::int64_t kMostElements = 32767;
// Whether a loop on this thread is as fast as LibTorch with all of its threads. `times`: how many times as
// fast as LibTorch's loop on one thread it is.
bool is_fast_alone(std::int64_t num_elements, int times) {
  return num_elements <= kMostElements || at::get_num_threads() <= times;
}

// The elements of a tensor of a replay. Its memory may move between runs.
class Elements {
 public:
  explicit Elements(const at::Tensor& tensor)
      : storage_(tensor.storage()), offset_(tensor.storage_offset()) {}
  template <class T = float>
  T* data() const {
    return static_cast<T*>(storage_.unsafeGetStorageImpl()->mutable_data()) + offset_;
  }

 private:
  c10::Storage storage_;
  std::int64_t offset_;
};

template <class Run>
class LoopNode : public ReplayNode {
 public:
  explicit LoopNode(Run run) : run_(std::move(run)) {}
  void run() override { run_(); }

 private:
  Run run_;
};

template <class Run>
NodePtr loop_node(Run run) {
  return std::make_unique<LoopNode<Run>>(std::move(run));
}

// The operator itself, for values that a loop does not handle.
std::optional<OutVariantNode> writing_node(const c10::OperatorHandle& op, Arguments arguments,
                                           const Results& results) {
  const auto out = out_operator(op);
  if (!out) return std::nullopt;
  arguments.insert(arguments.end(), results.begin(), results.end());
  return OutVariantNode(*out, std::move(arguments));
}

bool has_layout(const at::Tensor& tensor, at::MemoryFormat format) {
  return tensor.dim() == 4 && tensor.numel() > 0 && tensor.is_contiguous(format);
}

bool is_number(const c10::IValue& value, double number) {
  return value.isScalar() && value.toScalar().toDouble() == number;
}

// For float32 and bfloat16 images in channels-last order whose gradient is contiguous (NCHW), as it is before
// a layer that flattens them. LibTorch computes these one number at a time.
NodePtr relu_backward_of_planes(const Arguments& in, const at::Tensor& out) {
  const at::Tensor &gradient = in[0].toTensor(), &x = in[1].toTensor();
  constexpr auto kChannelsLast = at::MemoryFormat::ChannelsLast;
  if (!has_layout(gradient, at::MemoryFormat::Contiguous) || !has_layout(x, kChannelsLast) ||
      x.is_contiguous() || !has_layout(out, kChannelsLast) || gradient.sizes() != x.sizes() ||
      !is_number(in[2], 0) || gradient.scalar_type() != x.scalar_type() || !is_fast_alone(x.numel(), 8))
    return nullptr;
  const loops::Images images{.batch = x.size(0), .channels = x.size(1), .num_places = x.size(2) * x.size(3)};
  const Elements from(gradient), where(x), to(out);
  if (x.scalar_type() == at::kFloat)
    return loop_node([=] { loops::relu_backward_of_planes(images, from.data(), where.data(), to.data()); });
  if (x.scalar_type() != at::kBFloat16) return nullptr;
  return loop_node([=] {
    loops::relu_backward_of_planes(images, from.data<std::uint16_t>(), where.data<std::uint16_t>(),
                                   to.data<std::uint16_t>());
  });
}

// LibTorch vectorises the pooling of a multiple of so many channels, too.
constexpr std::int64_t kFilledRegisters = 16;

constexpr std::int64_t kMostWindows = 1 << 20;  // 8 bytes each

// Returns nothing if the three have different memory layouts. `x`: what the windows cover.
std::optional<loops::PoolingImages> images_of(const at::Tensor& x, const at::Tensor& values,
                                              const at::Tensor& indices) {
  const auto have_layout = [&](at::MemoryFormat format) {
    return x.is_contiguous(format) && values.is_contiguous(format) && indices.is_contiguous(format);
  };
  const bool is_one = x.dim() == 3, are_planes = have_layout(at::MemoryFormat::Contiguous);
  if (!are_planes && (is_one || !have_layout(at::MemoryFormat::ChannelsLast))) return std::nullopt;
  return loops::PoolingImages{.batch = is_one ? 1 : x.size(0),
                              .channels = x.size(-3),
                              .num_places = x.size(-2) * x.size(-1),
                              .num_windows = values.size(-2) * values.size(-1),
                              .is_channels_last = !are_planes};
}

bool is_worth_it(const loops::PoolingImages& images, std::int64_t num_elements) {
  const std::int64_t lanes = images.is_channels_last ? images.channels : images.batch * images.channels;
  if (lanes < loops::kFewestPoolingLanes) return false;
  if (num_elements > kMostElements && images.is_channels_last && images.channels % kFilledRegisters == 0)
    return false;
  return is_fast_alone(num_elements, images.is_channels_last ? 2 : 8);
}

// Height and width; a single number is used for both. `kernel`: the position of that argument, which stride,
// padding and dilation follow.
std::array<loops::PoolingAxis, 2> axes_of(const Arguments& in, std::size_t kernel, const at::Tensor& x,
                                          const at::Tensor& values) {
  const auto of_axis = [&](std::size_t argument, std::size_t axis) {
    std::vector<std::int64_t> both = in[argument].toIntVector();
    if (both.empty()) both = in[kernel].toIntVector();  // an omitted stride
    return both[std::min(axis, both.size() - 1)];
  };
  const auto axis = [&](std::size_t number) {
    const std::int64_t dim = static_cast<std::int64_t>(number) - 2;
    return loops::PoolingAxis{.size = x.size(dim),
                              .out_size = values.size(dim),
                              .kernel = of_axis(kernel, number),
                              .stride = of_axis(kernel + 1, number),
                              .padding = of_axis(kernel + 2, number),
                              .dilation = of_axis(kernel + 3, number)};
  };
  return {axis(0), axis(1)};
}

bool are_disjoint(const loops::PoolingAxis& axis) { return axis.stride > (axis.kernel - 1) * axis.dilation; }

// aten::max_pool2d_with_indices of float32 and bfloat16. `results`: values and indices.
NodePtr max_pool(const c10::OperatorHandle& op, const Arguments& arguments, const Results& results) {
  const at::Tensor &x = arguments[0].toTensor(), &values = results[0], &indices = results[1];
  const bool is_float = x.scalar_type() == at::kFloat;
  if ((!is_float && x.scalar_type() != at::kBFloat16) || values.numel() == 0) return nullptr;
  const auto images = images_of(x, values, indices);
  if (!images || !is_worth_it(*images, x.numel())) return nullptr;
  if (images->num_places > std::numeric_limits<std::int32_t>::max() || images->num_windows > kMostWindows)
    return nullptr;
  const auto [rows, columns] = axes_of(arguments, 1, x, values);
  loops::PoolingWindows windows(rows, columns);
  if (windows.has_empty) return nullptr;
  const Elements from(x), to(values), places(indices);
  if (is_float)
    return loop_node([=, windows = std::move(windows), images = *images] {
      loops::max_pool(windows, images, from.data(), to.data(), places.data<std::int64_t>());
    });
  const auto by_libtorch = writing_node(op, arguments, results);
  if (!by_libtorch) return nullptr;
  return loop_node([=, windows = std::move(windows), images = *images, by_libtorch = *by_libtorch]() mutable {
    if (!loops::max_pool(windows, images, from.data<std::uint16_t>(), to.data<std::uint16_t>(),
                         places.data<std::int64_t>()))
      by_libtorch.run();
  });
}

// aten::max_pool2d_with_indices_backward of bfloat16 with windows that do not overlap. LibTorch is fast
// enough for float32.
NodePtr max_pool_backward(const c10::OperatorHandle& op, const Arguments& arguments, const Results& results) {
  const at::Tensor &gradient = arguments[0].toTensor(), &indices = arguments[7].toTensor(), &out = results[0];
  if (gradient.scalar_type() != at::kBFloat16 || gradient.numel() == 0) return nullptr;
  const auto images = images_of(out, gradient, indices);
  const auto [rows, columns] = axes_of(arguments, 2, out, gradient);
  if (!images || !is_fast_alone(out.numel(), 1) || !are_disjoint(rows) || !are_disjoint(columns))
    return nullptr;
  const auto by_libtorch = writing_node(op, arguments, results);
  if (!by_libtorch) return nullptr;
  const Elements from(gradient), places(indices), to(out);
  return loop_node([=, images = *images, by_libtorch = *by_libtorch]() mutable {
    if (!loops::max_pool_backward(images, from.data<std::uint16_t>(), places.data<std::int64_t>(),
                                  to.data<std::uint16_t>()))
      by_libtorch.run();
  });
}

bool is_dense(const at::Tensor& tensor) {
  return tensor.defined() && tensor.scalar_type() == at::kFloat && tensor.is_contiguous() &&
         tensor.numel() > 0;
}

bool is_small(const at::Tensor& tensor) { return is_dense(tensor) && tensor.numel() <= kMostElements; }

NodePtr relu(const Arguments& in, const at::Tensor& out) {
  const at::Tensor& x = in[0].toTensor();
  if (!is_small(x) || !is_small(out)) return nullptr;
  return loop_node([x = Elements(x), out = Elements(out), count = out.numel()] {
    loops::relu(x.data(), out.data(), count);
  });
}

NodePtr relu_backward(const Arguments& in, const at::Tensor& out) {
  if (auto of_planes = relu_backward_of_planes(in, out)) return of_planes;
  const at::Tensor &gradient = in[0].toTensor(), &x = in[1].toTensor();
  if (!is_small(gradient) || !is_small(x) || !is_small(out) || gradient.sizes() != x.sizes() ||
      !is_number(in[2], 0))
    return nullptr;
  return loop_node(
      [gradient = Elements(gradient), x = Elements(x), out = Elements(out), count = out.numel()] {
        loops::relu_backward(gradient.data(), x.data(), out.data(), count);
      });
}

// Numbers whose sums depend on their order. They are the same in every process.
at::Tensor uneven_numbers(at::IntArrayRef sizes, std::uint32_t seed) {
  at::Tensor numbers = at::empty(sizes, at::kFloat);
  std::uint32_t state = seed;
  for (std::int64_t i = 0; i < numbers.numel(); ++i) {
    state = state * 1664525 + 1013904223;
    numbers.mutable_data_ptr<float>()[i] = static_cast<float>(state) / 4e9F - 0.3F;
  }
  return numbers;
}

// Two orders of summation may agree on one matrix by chance, but not on all of these.
bool sums_in(std::int64_t group, std::int64_t rows, std::int64_t columns) {
  constexpr std::uint32_t kTries = 16;
  at::Tensor own = at::empty({columns}, at::kFloat);
  for (std::uint32_t seed = 1; seed <= kTries; ++seed) {
    const at::Tensor x = uneven_numbers({rows, columns}, seed);
    loops::sum_rows(x.const_data_ptr<float>(), own.mutable_data_ptr<float>(), rows, columns, group);
    if (!own.equal(at::cpu::sum(x, at::IntArrayRef{0}))) return false;
  }
  return true;
}

// Finds the size of the groups in which LibTorch sums columns by comparing results; nothing if no size
// matches.
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
                    group = *group] { loops::sum_rows(x.data(), out.data(), rows, columns, group); });
}

// The BLAS call that LibTorch makes for result = m1·m2 with row-major or column-major matrices; nothing if
// LibTorch would have to copy one of them.
struct Product {
  Gemm shape;
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
  // The stride of a matrix of one row or column is meaningless.
  if (n == 1) ldc = m;
  if (*transpose_a ? m == 1 : k == 1) lda = *transpose_a ? k : m;
  if (*transpose_b ? k == 1 : n == 1) ldb = *transpose_b ? n : k;
  if (std::max({m, n, k, lda, ldb, ldc}) > std::numeric_limits<std::int32_t>::max()) return std::nullopt;
  return Product{.shape = {.transpose_a = *transpose_a,
                           .transpose_b = *transpose_b,
                           .m = m,
                           .n = n,
                           .k = k,
                           .lda = lda,
                           .ldb = ldb,
                           .ldc = ldc,
                           .beta = adds ? 1.F : 0.F},
                 .is_swapped = swaps};
}

bool is_matrix(const at::Tensor& tensor) {
  return tensor.defined() && tensor.dim() == 2 && tensor.scalar_type() == at::kFloat && tensor.numel() > 0;
}

NodePtr product(const at::Tensor& m1, const at::Tensor& m2, const at::Tensor& bias, const at::Tensor& out) {
  // LibTorch then calls oneDNN, which may round the factors.
  if (shortens_float32_products(at::kCPU)) return nullptr;
  const Sgemm sgemm = libtorch_sgemm();
  if (sgemm == nullptr || !is_matrix(m1) || !is_matrix(m2) || !is_matrix(out)) return nullptr;
  const auto found = product_of(m1, m2, out, bias.defined());
  if (!found) return nullptr;
  const Elements a(found->is_swapped ? m2 : m1), b(found->is_swapped ? m1 : m2), c(out);
  if (!bias.defined())
    return loop_node(
        [a, b, c, sgemm, shape = found->shape] { multiply(sgemm, shape, a.data(), b.data(), c.data()); });
  if (!is_dense(bias) || bias.dim() != 1 || bias.size(0) != out.size(1) || !out.is_contiguous())
    return nullptr;
  return loop_node([a, b, c, sgemm, shape = found->shape, bias = Elements(bias), rows = out.size(0),
                    columns = out.size(1)] {
    loops::fill_rows(bias.data(), c.data(), rows, columns);
    multiply(sgemm, shape, a.data(), b.data(), c.data());
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
    loops::squared_difference(x.data(), y.data(), squares.mutable_data_ptr<float>(), squares.numel());
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
    loops::squared_difference_backward(scale, *gradient.data(), x.data(), y.data(), out.data(), count);
  });
}

// What counts the right answers of a classifier.
NodePtr argmax(const Arguments& in, const at::Tensor& out) {
  const at::Tensor& x = in[0].toTensor();
  if (!is_small(x) || x.dim() != 2 || !in[1].isInt() || !out.is_contiguous()) return nullptr;
  if (in[1].toInt() != 1 && in[1].toInt() != -1) return nullptr;
  return loop_node([x = Elements(x), out = Elements(out), rows = x.size(0), columns = x.size(1)] {
    loops::largest_of_rows(x.data(), out.data<std::int64_t>(), rows, columns);
  });
}

bool is_small_of(at::ScalarType type, const at::Tensor& tensor) {
  return tensor.scalar_type() == type && tensor.is_contiguous() && tensor.numel() <= kMostElements;
}

NodePtr equal(const Arguments& in, const at::Tensor& out) {
  const at::Tensor &x = in[0].toTensor(), &y = in[1].toTensor();
  if (!is_small_of(at::kLong, x) || !is_small_of(at::kLong, y) || !is_small_of(at::kBool, out) ||
      x.sizes() != y.sizes())
    return nullptr;
  return loop_node([x = Elements(x), y = Elements(y), out = Elements(out), count = out.numel()] {
    loops::equal(x.data<std::int64_t>(), y.data<std::int64_t>(), out.data<bool>(), count);
  });
}

NodePtr not_equal(const Arguments& in, const at::Tensor& out) {
  const at::Tensor& x = in[0].toTensor();
  if (!is_small_of(at::kLong, x) || !is_small_of(at::kBool, out) || !in[1].isInt()) return nullptr;
  return loop_node([x = Elements(x), y = in[1].toInt(), out = Elements(out), count = out.numel()] {
    loops::not_equal(x.data<std::int64_t>(), y, out.data<bool>(), count);
  });
}

NodePtr count_true(const Arguments& in, const at::Tensor& out) {
  const at::Tensor& x = in[0].toTensor();
  if (!is_small_of(at::kBool, x) || !is_small_of(at::kLong, out) || out.numel() != 1) return nullptr;
  return loop_node([x = Elements(x), out = Elements(out), count = x.numel()] {
    *out.data<std::int64_t>() = loops::count_true(x.data<bool>(), count);
  });
}

using Make = NodePtr (*)(const c10::OperatorHandle&, const Arguments&, const Results&);

template <NodePtr (*make)(const Arguments&, const at::Tensor&)>
NodePtr of_one_result(const c10::OperatorHandle&, const Arguments& in, const Results& results) {
  return results.size() == 1 && results.front().defined() ? make(in, results.front()) : nullptr;
}

}  // namespace

NodePtr native_kernel(const c10::OperatorHandle& op, const Arguments& arguments, const Results& results) {
  static const std::map<std::pair<std::string, std::string>, Make> all{
      {{"aten::relu", ""}, of_one_result<relu>},
      {{"aten::threshold_backward", ""}, of_one_result<relu_backward>},
      {{"aten::sum", "dim_IntList"}, of_one_result<sum_rows>},
      {{"aten::argmax", ""}, of_one_result<argmax>},
      {{"aten::eq", "Tensor"}, of_one_result<equal>},
      {{"aten::ne", "Scalar"}, of_one_result<not_equal>},
      {{"aten::sum", ""}, of_one_result<count_true>},
      {{"aten::mm", ""}, of_one_result<mm>},
      {{"aten::addmm", ""}, of_one_result<addmm>},
      {{"aten::mse_loss", ""}, of_one_result<mse_loss>},
      {{"aten::mse_loss_backward", ""}, of_one_result<mse_loss_backward>},
      {{"aten::max_pool2d_with_indices", ""}, max_pool},
      {{"aten::max_pool2d_with_indices_backward", ""}, max_pool_backward}};
  const auto found = all.find({op.operator_name().name, op.operator_name().overload_name});
  return found == all.end() ? nullptr : found->second(op, arguments, results);
}

}  // namespace kindling
