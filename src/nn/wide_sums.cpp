#include "nn/wide_sums.h"

#include <ATen/autocast_mode.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/addbmm.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/native_layer_norm_backward.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <tuple>
#include <vector>

#include "kindling/base/log.h"

namespace kindling {
namespace {

// A dispatch key above autograd, autocast and the keys of the recorders, so that these see the operators that
// compute in float32. C++ programs do not use it.
constexpr c10::DispatchKey kWideKey = c10::DispatchKey::TESTING_ONLY_GenericWrapper;

// An element that fewer windows contain is a sum of few numbers, which 16 bits add up to within 2 %.
constexpr std::int64_t kFewWindows = 16;

bool has_16_bits(const at::Tensor& tensor) {
  return tensor.defined() && tensor.is_cpu() && tensor.layout() == at::kStrided &&
         at::isReducedFloatingType(tensor.scalar_type());
}

at::Tensor in_float(const std::optional<at::Tensor>& tensor) {
  return tensor && tensor->defined() ? tensor->to(at::kFloat) : at::Tensor();
}

// --- Layer norm ---

using NormGradients =
    std::tuple<at::Tensor, at::Tensor, at::Tensor>;  // of the input, the weight and the bias

// The gradient of the input is LibTorch's, which adds up in float32.
NormGradients layer_norm_gradients(const at::Tensor& gradient, const at::Tensor& input,
                                   at::IntArrayRef normalized_shape, const at::Tensor& mean,
                                   const at::Tensor& rstd, const std::optional<at::Tensor>& weight,
                                   const std::optional<at::Tensor>& bias, std::array<bool, 3> is_wanted) {
  const c10::impl::ExcludeDispatchKeyGuard not_here(kWideKey);
  if (!has_16_bits(input) || !(is_wanted[1] || is_wanted[2]))
    return at::native_layer_norm_backward(gradient, input, normalized_shape, mean, rstd, weight, bias,
                                          is_wanted);
  at::Tensor of_input;
  if (is_wanted[0])
    of_input = std::get<0>(at::native_layer_norm_backward(gradient, input, normalized_shape, mean, rstd,
                                                          weight, bias, {true, false, false}));
  auto [none, of_weight, of_bias] = at::native_layer_norm_backward(
      in_float(gradient), in_float(input), normalized_shape, in_float(mean), in_float(rstd), in_float(weight),
      in_float(bias), {false, is_wanted[1], is_wanted[2]});
  const auto typed = [](const at::Tensor& sum, const std::optional<at::Tensor>& like) {
    return sum.defined() && like && like->defined() ? sum.to(like->scalar_type()) : sum;
  };
  return {of_input, typed(of_weight, weight), typed(of_bias, bias)};
}

// --- Sums of products ---

// One product of matrices that are the batch's side by side: LibTorch adds its products up one by one.
at::Tensor sum_of_products(const at::Tensor& self, const at::Tensor& batch1, const at::Tensor& batch2,
                           const at::Scalar& beta, const at::Scalar& alpha) {
  const c10::impl::ExcludeDispatchKeyGuard not_here(kWideKey);
  const bool is_autocast = batch1.is_cpu() && at::autocast::is_autocast_enabled(at::kCPU) &&
                           batch1.scalar_type() != at::kDouble && batch1.is_floating_point();
  const bool are_matrices =
      batch1.dim() == 3 && batch2.dim() == 3 && batch1.size(0) == batch2.size(0) && batch1.size(0) > 0;
  if (!are_matrices || !(has_16_bits(batch1) || is_autocast))
    return at::addbmm(self, batch1, batch2, beta, alpha);
  const std::int64_t inner = batch1.size(0) * batch1.size(2);
  return at::addmm(self, batch1.permute({1, 0, 2}).reshape({batch1.size(1), inner}),
                   batch2.reshape({batch2.size(0) * batch2.size(1), batch2.size(2)}), beta, alpha);
}

at::Tensor& add_sum_of_products(at::Tensor& self, const at::Tensor& batch1, const at::Tensor& batch2,
                                const at::Scalar& beta, const at::Scalar& alpha) {
  return self.copy_(sum_of_products(self, batch1, batch2, beta, alpha));
}

// --- Operators that are right in float32 ---

using Arguments = std::span<c10::IValue>;

const c10::IValue& argument(const c10::OperatorHandle& op, Arguments given, const char* name) {
  return given[static_cast<std::size_t>(op.schema().argumentIndexWithName(name).value())];
}

// Whether a call adds up many numbers.
using Condition = bool (*)(const c10::OperatorHandle& op, Arguments given);

bool always(const c10::OperatorHandle&, Arguments) { return true; }

bool accumulates(const c10::OperatorHandle& op, Arguments given) {
  return argument(op, given, "accumulate").toBool();
}

std::int64_t quotient_up(std::int64_t number, std::int64_t by) {
  return (number + by - 1) / std::max<std::int64_t>(by, 1);
}

// Windows of kernel_size that begin every `stride` elements.
bool has_many_windows(const c10::OperatorHandle& op, Arguments given) {
  const std::vector<std::int64_t> size = argument(op, given, "kernel_size").toIntVector(),
                                  stride = argument(op, given, "stride").toIntVector();
  std::int64_t windows = 1;
  for (std::size_t i = 0; i < size.size(); ++i)
    windows *= stride.empty() ? 1 : quotient_up(size[i], stride[std::min(i, stride.size() - 1)]);
  return windows > kFewWindows;
}

bool unfolds_many_windows(const c10::OperatorHandle& op, Arguments given) {
  return quotient_up(argument(op, given, "size").toInt(), argument(op, given, "step").toInt()) > kFewWindows;
}

// Adaptive pooling to more elements than there are.
bool spreads_to_many(const c10::OperatorHandle& op, Arguments given) {
  const at::Tensor &gradient = argument(op, given, "grad_output").toTensor(),
                   &self = argument(op, given, "self").toTensor();
  std::int64_t windows = 1;
  for (std::int64_t i = 0; i < self.dim(); ++i) windows *= quotient_up(gradient.size(i), self.size(i));
  return windows > kFewWindows;
}

// Returns the type of all floating-point tensors if it has 16 bits; operators that accept several types add
// up in the widest.
std::optional<at::ScalarType> narrow_type(Arguments given) {
  std::optional<at::ScalarType> type;
  bool is_same = true;
  const auto look = [&](const at::Tensor& tensor) {
    if (!tensor.defined() || !tensor.is_floating_point()) return;
    is_same = is_same && has_16_bits(tensor) && tensor.scalar_type() == type.value_or(tensor.scalar_type());
    type = tensor.scalar_type();
  };
  for (const c10::IValue& value : given)
    if (value.isTensor())
      look(value.toTensor());
    else if (value.isTensorList())
      for (const at::Tensor& tensor : value.toTensorVector()) look(tensor);
  return is_same ? type : std::nullopt;
}

c10::IValue converted(const c10::IValue& value, at::ScalarType from, at::ScalarType to) {
  const auto convert = [&](const at::Tensor& tensor) {
    return tensor.defined() && tensor.scalar_type() == from ? tensor.to(to) : tensor;
  };
  if (value.isTensor()) return convert(value.toTensor());
  if (!value.isTensorList()) return value;
  c10::List<at::Tensor> list;
  for (const at::Tensor& tensor : value.toTensorVector()) list.push_back(convert(tensor));
  return list;
}

template <Condition adds_many>
void compute_in_float(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const c10::impl::ExcludeDispatchKeyGuard not_here(kWideKey);
  const std::size_t count = op.schema().arguments().size(), num_results = op.schema().returns().size();
  const Arguments given(&*(stack->end() - static_cast<std::ptrdiff_t>(count)), count);
  const auto type = narrow_type(given);
  if (!type || !adds_many(op, given)) return op.callBoxed(stack);
  const auto* alias = op.schema().arguments().front().alias_info();
  at::Tensor written;
  if (alias != nullptr && alias->isWrite()) written = given.front().toTensor();
  for (c10::IValue& value : given) value = converted(value, *type, at::kFloat);
  op.callBoxed(stack);
  if (written.defined())
    stack->back() = written.copy_(stack->back().toTensor());
  else
    for (c10::IValue& result : Arguments(stack->data() + (stack->size() - num_results), num_results))
      result = converted(result, at::kFloat, *type);
}

template <Condition adds_many>
void implement(torch::Library& library, std::initializer_list<const char*> names) {
  for (const char* name : names)
    library.impl(name, torch::CppFunction::makeFromBoxedFunction<&compute_in_float<adds_many>>());
}

// Registers the kernels when they are first needed, for the rest of the process. Returns false, and logs a
// warning, if the key is taken.
bool have_kernels() {
  static const bool are_ours = [] {
    if (c10::Dispatcher::singleton().hasBackendFallbackForDispatchKey(kWideKey)) {
      log_warning(
          "precision: another library in this process has registered a fallback for LibTorch's dispatch key "
          "TESTING_ONLY_GenericWrapper, which Kindling needs to add up in float32, so the gradients of layer "
          "norm, embeddings and indexing are added up in 16 bits, as in PyTorch, and lose most of a sum of "
          "more than a few hundred rows");
      return false;
    }
    static auto* const all = new torch::Library(torch::Library::IMPL, "_", kWideKey, __FILE__, __LINE__);
    all->fallback(torch::CppFunction::makeFallthrough());
    static auto* const sums = new torch::Library(torch::Library::IMPL, "aten", kWideKey, __FILE__, __LINE__);
    sums->impl("native_layer_norm_backward", layer_norm_gradients);
    sums->impl("addbmm", sum_of_products);
    sums->impl("addbmm_", add_sum_of_products);
    implement<always>(*sums, {"embedding_dense_backward",
                              "_embedding_bag_dense_backward",
                              "index_add",
                              "index_add_",
                              "index_reduce",
                              "index_reduce_",
                              "histc",
                              "grid_sampler_2d_backward",
                              "grid_sampler_3d_backward",
                              "replication_pad1d_backward",
                              "replication_pad2d_backward",
                              "replication_pad3d_backward",
                              "lstm.input",
                              "lstm.data",
                              "gru.input",
                              "gru.data",
                              "rnn_tanh.input",
                              "rnn_tanh.data",
                              "rnn_relu.input",
                              "rnn_relu.data"});
    implement<accumulates>(*sums, {"index_put", "index_put_", "_index_put_impl_", "put", "put_"});
    implement<has_many_windows>(*sums, {"avg_pool2d_backward", "max_pool2d_with_indices_backward", "col2im"});
    implement<unfolds_many_windows>(*sums, {"unfold_backward"});
    implement<spreads_to_many>(*sums, {"_adaptive_avg_pool2d_backward", "_adaptive_avg_pool3d_backward",
                                       "adaptive_max_pool2d_backward", "adaptive_max_pool3d_backward"});
    return true;
  }();
  return are_ours;
}

}  // namespace

WideSums::WideSums(bool is_on) {
  if (is_on && have_kernels()) listening_.emplace(kWideKey);
}

}  // namespace kindling
