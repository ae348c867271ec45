#include "training/parallel/sync_batch_norm.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/batch_norm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/instance_norm.h>
#include <ATen/ops/native_batch_norm.h>
#include <ATen/ops/native_batch_norm_backward.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/var_mean.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <utility>
#include <vector>

#include "kindling/base/error.h"

namespace kindling {
namespace {

// A dispatch key above autograd and the composite operators that C++ programs do not use, other than that of
// ForwardRecorder.
constexpr c10::DispatchKey kBatchNormKey = c10::DispatchKey::TESTING_ONLY_GenericMode;

thread_local const SyncBatchNorm::Part* part_of_thread = nullptr;

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// What backward needs from forward in addition to tensors.
struct PartOfLayer : torch::CustomClassHolder {
  PartOfLayer(SyncBatchNorm::Part the_part, double the_eps) : part(std::move(the_part)), eps(the_eps) {}
  SyncBatchNorm::Part part;
  double eps;
};

struct Moments {
  at::Tensor mean, var, count;  // [channels], [channels], [1]
};

at::Tensor widened(const std::optional<at::Tensor>& tensor, at::ScalarType type) {
  return tensor && tensor->defined() ? tensor->to(type) : at::Tensor();
}

// Returns sums per channel over all other dimensions and all ranks: [2 × channels + 1] float64 numbers, so
// that the difference of two large sums does not lose precision.
Moments moments_of_all(const at::Tensor& x, const SyncBatchNorm::Part& part) {
  const std::int64_t channels = x.size(1);
  const auto options = x.options().dtype(at::kDouble);
  at::Tensor sums;
  if (part.counts) {
    std::vector<std::int64_t> others{0};
    for (std::int64_t i = 2; i < x.dim(); ++i) others.push_back(i);
    const auto [var, mean] = at::var_mean(x, others, /*correction=*/0);
    const at::Tensor first = mean.to(at::kDouble), second = var.to(at::kDouble) + first * first;
    const auto count = static_cast<double>(x.numel() / channels);
    sums = at::cat(std::vector<at::Tensor>{first * count, second * count, at::full({1}, count, options)});
  } else {
    sums = at::zeros({2 * channels + 1}, options);
  }
  part.group->all_reduce(sums);
  const at::Tensor count = sums.narrow(0, 2 * channels, 1).clone();
  const at::Tensor mean = sums.narrow(0, 0, channels) / count;
  const at::Tensor var = (sums.narrow(0, channels, channels) / count - mean * mean).clamp_min(0);
  return {mean, var, count};
}

// Updates the running statistics with the unbiased variance, as batch norm does in a single process.
void move_running(const std::optional<at::Tensor>& mean, const std::optional<at::Tensor>& var,
                  const Moments& moments, double momentum) {
  const auto move = [momentum](const std::optional<at::Tensor>& to, const at::Tensor& by) {
    if (to && to->defined()) to->mul_(1 - momentum).add_(by.to(to->scalar_type()), momentum);
  };
  move(mean, moments.mean);
  move(var, moments.var * (moments.count / (moments.count - 1)));
}

struct NormOfAll : torch::autograd::Function<NormOfAll> {
  using Given = std::optional<at::Tensor>;

  static at::Tensor forward(AutogradContext* context, const at::Tensor& input, const Given& weight,
                            const Given& bias, const Given& running_mean, const Given& running_var,
                            double momentum, double eps) {
    const SyncBatchNorm::Part& part = *part_of_thread;
    const at::ScalarType type = input.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
    const at::Tensor x = input.to(type);
    const Moments moments = moments_of_all(x, part);
    move_running(running_mean, running_var, moments, momentum);
    const at::Tensor mean = moments.mean.to(type), var = moments.var.to(type);
    const at::Tensor none;
    context->save_for_backward({input, weight.value_or(none), bias.value_or(none), mean, var, moments.count});
    context->saved_data["part"] = at::IValue::make_capsule(c10::make_intrusive<PartOfLayer>(part, eps));
    const auto normed = at::native_batch_norm(x, widened(weight, type), widened(bias, type), mean, var,
                                              /*training=*/false, momentum, eps);
    return std::get<0>(normed).to(input.scalar_type());
  }

  // The gradient through the mean and the variance, which depend on all samples: the sums of the gradients
  // and of their products with the normalized values, each rank's weighted by its part of the loss.
  static variable_list backward(AutogradContext* context, const variable_list& of_outputs) {
    if (at::GradMode::is_enabled())
      throw Error({.place = "synchronized batch norm",
                   .found = "second derivatives (create_graph) are not supported",
                   .wanted = "first derivatives only",
                   .remedy = "sync_batchnorm = false"});
    const auto capsule = context->saved_data.at("part").toCapsule();
    const auto& layer = static_cast<const PartOfLayer&>(*capsule);
    const SyncBatchNorm::Part& part = layer.part;
    const auto saved = context->get_saved_variables();
    const at::Tensor &input = saved[0], &weight = saved[1], &bias = saved[2], &mean = saved[3],
                     &var = saved[4];
    const at::ScalarType type = mean.scalar_type();
    const at::Tensor x = input.to(type), w = widened(weight, type);
    auto [of_x, of_weight, of_bias] =
        at::native_batch_norm_backward(of_outputs[0].to(type).contiguous(), x, w, mean, var, {}, {},
                                       /*train=*/false, layer.eps, {true, true, true});
    if (context->needs_input_grad(0)) {
      at::Tensor sums = at::cat(std::vector<at::Tensor>{of_bias, of_weight}).to(at::kDouble);
      sums = part.scale != 0 ? sums * part.scale : at::zeros_like(sums);
      part.group->all_reduce(sums);
      if (part.counts && part.scale != 0)
        subtract(of_x, x, w, mean, var, sums / saved[5] / part.scale, layer.eps);
    }
    const auto given = [](const at::Tensor& gradient, const at::Tensor& like) {
      return like.defined() ? gradient.to(like.scalar_type()) : at::Tensor();
    };
    return {of_x.to(input.scalar_type()), given(of_weight, weight), given(of_bias, bias), {}, {}, {}, {}};
  }

  static void subtract(at::Tensor& of_x, const at::Tensor& x, const at::Tensor& weight,
                       const at::Tensor& mean, const at::Tensor& var, const at::Tensor& means, double eps) {
    const std::int64_t channels = x.size(1);
    std::vector<std::int64_t> shape(static_cast<std::size_t>(x.dim()), 1);
    shape[1] = channels;
    const at::Tensor inverse = at::rsqrt(var + eps);
    const at::Tensor slope = weight.defined() ? weight * inverse : inverse;
    const at::Tensor level = means.narrow(0, 0, channels).to(x.scalar_type()) * slope;
    const at::Tensor tilt = means.narrow(0, channels, channels).to(x.scalar_type()) * slope * inverse;
    of_x.sub_(level.view(shape)).sub_((x - mean.view(shape)).mul_(tilt.view(shape)));
  }
};

at::Tensor norm(const at::Tensor& input, const std::optional<at::Tensor>& weight,
                const std::optional<at::Tensor>& bias, const std::optional<at::Tensor>& running_mean,
                const std::optional<at::Tensor>& running_var, bool training, double momentum, double eps,
                bool cudnn_enabled) {
  const c10::impl::ExcludeDispatchKeyGuard not_here(kBatchNormKey);
  if (training && part_of_thread == nullptr)  // an autograd thread of a GPU that has inherited the key
    throw ConfigError({.place = "synchronized batch norm",
                       .found = "the layer runs on a different thread than the training step",
                       .wanted = "no batch norm within an activation checkpoint on a GPU",
                       .remedy = "sync_batchnorm = false"});
  if (!training)
    return at::batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps,
                          cudnn_enabled);
  return NormOfAll::apply(input, weight, bias, running_mean, running_var, momentum, eps);
}

// Keeps instance norm local: it calls at::batch_norm with a channel for each channel of each sample.
at::Tensor norm_of_instances(const at::Tensor& input, const std::optional<at::Tensor>& weight,
                             const std::optional<at::Tensor>& bias,
                             const std::optional<at::Tensor>& running_mean,
                             const std::optional<at::Tensor>& running_var, bool use_input_stats,
                             double momentum, double eps, bool cudnn_enabled) {
  const c10::impl::ExcludeDispatchKeyGuard not_here(kBatchNormKey);
  return at::instance_norm(input, weight, bias, running_mean, running_var, use_input_stats, momentum, eps,
                           cudnn_enabled);
}

// The operators that Python programs may call instead of at::batch_norm.
void refuse_in_training(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const c10::impl::ExcludeDispatchKeyGuard not_here(kBatchNormKey);
  const auto training = op.schema().argumentIndexWithName("training");
  const std::size_t first = stack->size() - op.schema().arguments().size();
  if (training && (*stack)[first + static_cast<std::size_t>(*training)].toBool())
    throw ConfigError(
        {.place = "operator " + op.operator_name().name,
         .found = "sync_batchnorm is set, but the operator uses the statistics of a single rank",
         .wanted = "aten::batch_norm, which torch.export.export keeps",
         .remedy = "sync_batchnorm = false, or export without decompositions"});
  op.callBoxed(stack);
}

// Registers the kernels when they are first needed, for the rest of the process.
void register_kernels() {
  static const bool is_ours = [] {
    if (c10::Dispatcher::singleton().hasBackendFallbackForDispatchKey(kBatchNormKey)) return false;
    static auto* const all = new torch::Library(torch::Library::IMPL, "_", kBatchNormKey, __FILE__, __LINE__);
    all->fallback(torch::CppFunction::makeFallthrough());
    static auto* const norms =
        new torch::Library(torch::Library::IMPL, "aten", kBatchNormKey, __FILE__, __LINE__);
    norms->impl("batch_norm", norm);
    norms->impl("instance_norm", norm_of_instances);
    for (const char* name : {"native_batch_norm", "_native_batch_norm_legit",
                             "_native_batch_norm_legit.no_stats", "_native_batch_norm_legit_functional"})
      norms->impl(name, torch::CppFunction::makeFromBoxedFunction<&refuse_in_training>());
    return true;
  }();
  if (!is_ours)
    throw ConfigError(
        {.place = "trainer.sync_batchnorm",
         .found =
             "another library in this process has already registered a fallback for LibTorch's dispatch key "
             "TESTING_ONLY_GenericMode",
         .wanted = "an unused dispatch key",
         .remedy = "sync_batchnorm = false, or do not load that library"});
}

}  // namespace

class SyncBatchNorm::Scope::Active {
 public:
  explicit Active(Part part) : part_(std::move(part)), former_(std::exchange(part_of_thread, &part_)) {}
  ~Active() { part_of_thread = former_; }
  Active(const Active&) = delete;
  Active& operator=(const Active&) = delete;

 private:
  const Part part_;
  const Part* former_;
  c10::impl::IncludeDispatchKeyGuard listening_{kBatchNormKey};
};

SyncBatchNorm::Scope::Scope(Part part) {
  if (!part.group) return;
  register_kernels();
  active_ = std::make_unique<Active>(std::move(part));
}

SyncBatchNorm::Scope::~Scope() = default;

}  // namespace kindling
