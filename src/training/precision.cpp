#include "training/precision.h"

#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <torch/nn/module.h>

namespace kindling {

Precision Precision::named(const std::string& name) {
  if (name == "bf16-mixed") return {.autocast = at::kBFloat16};
  if (name == "16-mixed") return {.autocast = at::kHalf, .scales_gradients = true};
  if (name == "bf16-true") return {.weights = at::kBFloat16};
  if (name == "64-true") return {.weights = at::kDouble};
  return {};
}

void give_precision(torch::nn::Module& model, const Precision& precision) {
  if (!precision.weights) return;
  const at::NoGradGuard no_grad;
  const auto convert = [&](at::Tensor tensor) {
    if (tensor.defined() && tensor.is_floating_point()) tensor.set_data(tensor.to(*precision.weights));
  };
  for (const at::Tensor& parameter : model.parameters()) convert(parameter);
  for (const at::Tensor& buffer : model.buffers()) convert(buffer);
}

Batch in_precision(Batch batch, const Precision& precision) {
  if (precision.weights)
    for (at::Tensor& tensor : batch.tensors())
      if (tensor.is_floating_point()) tensor = tensor.to(*precision.weights);
  return batch;
}

AutocastScope::AutocastScope(const Precision& precision, Device device)
    : is_on_(precision.autocast.has_value()), device_(device.type()) {
  if (!is_on_) return;
  was_enabled_ = at::autocast::is_autocast_enabled(device_);
  former_type_ = at::autocast::get_autocast_dtype(device_);
  at::autocast::increment_nesting();
  at::autocast::set_autocast_enabled(device_, true);
  at::autocast::set_autocast_dtype(device_, *precision.autocast);
}

// What it keeps are casts of weights, which the update changes.
AutocastScope::~AutocastScope() {
  if (!is_on_) return;
  if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  at::autocast::set_autocast_enabled(device_, was_enabled_);
  at::autocast::set_autocast_dtype(device_, former_type_);
}

}  // namespace kindling
