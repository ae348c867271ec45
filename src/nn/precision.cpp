#include "training/precision.h"

#include <ATen/autocast_mode.h>
#include <torch/nn/module.h>

#include "tensors/state_fit.h"

namespace kindling {

namespace {

std::vector<at::Tensor> of_another_type(const torch::nn::Module& model, const Precision& precision) {
  std::vector<at::Tensor> found;
  const auto look = [&](const at::Tensor& tensor) {
    if (tensor.defined() && tensor.is_floating_point() && precision.weights &&
        tensor.scalar_type() != *precision.weights)
      found.push_back(tensor);
  };
  for (const at::Tensor& parameter : model.parameters()) look(parameter);
  for (const at::Tensor& buffer : model.buffers()) look(buffer);
  return found;
}

}  // namespace

Precision Precision::named(const std::string& name) {
  if (name == "bf16-mixed") return {.autocast = at::kBFloat16};
  if (name == "16-mixed") return {.autocast = at::kHalf, .scales_gradients = true};
  if (name == "bf16-true") return {.weights = at::kBFloat16};
  if (name == "64-true") return {.weights = at::kDouble};
  return {};
}

void give_precision(torch::nn::Module& model, const Precision& precision) {
  if (!precision.weights) return;
  for (const auto& [name, layer] : layers_without_shape(model)) layer->type = *precision.weights;
  for (at::Tensor tensor : of_another_type(model, precision)) tensor.set_data(tensor.to(*precision.weights));
}

PrecisionScope::PrecisionScope(torch::nn::Module& model, const Precision& precision) {
  for (const at::Tensor& tensor : of_another_type(model, precision))
    former_.emplace_back(tensor, tensor.detach());
  give_precision(model, precision);
}

PrecisionScope::~PrecisionScope() {
  for (auto& [tensor, former] : former_) tensor.set_data(former);
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

AutocastPause::AutocastPause(Device device)
    : device_(device.type()), was_enabled_(at::autocast::is_autocast_enabled(device_)) {
  if (was_enabled_) at::autocast::set_autocast_enabled(device_, false);
}

AutocastPause::~AutocastPause() {
  if (!was_enabled_) return;
  at::autocast::clear_cache();
  at::autocast::set_autocast_enabled(device_, true);
}

}  // namespace kindling
