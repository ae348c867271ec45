#include "nn/precision.h"

#include <ATen/autocast_mode.h>
#include <ATen/core/grad_mode.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <string>

#include "kindling/data/input_transform.h"
#include "kindling/nn/lazy_conv2d.h"
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
  // Raw inputs do not have the model's precision, and neither has their transform.
  const bool has_transform = input_transform_of(model) != nullptr;
  for (const auto& buffer : model.named_buffers())
    if (!has_transform || !is_of_input_transform(buffer.key())) look(buffer.value());
  return found;
}

constexpr std::int64_t kManyChannels = 32;

bool has_four_dimensions(const at::Tensor& tensor) {
  return tensor.defined() && tensor.dim() == 4 && tensor.is_floating_point();
}

// Of each convolution; lazy ones know theirs before the first batch.
std::vector<std::int64_t> output_channels(const torch::nn::Module& model) {
  std::vector<std::int64_t> channels;
  for (const auto& layer : model.modules(/*include_self=*/false))
    if (const auto* lazy = dynamic_cast<const LazyConv2dImpl*>(layer.get()))
      channels.push_back(lazy->options().out_channels);
  for (const at::Tensor& parameter : model.parameters())
    if (has_four_dimensions(parameter)) channels.push_back(parameter.size(0));
  return channels;
}

void put_channels_last(at::Tensor tensor) {
  if (has_four_dimensions(tensor)) tensor.set_data(tensor.contiguous(at::MemoryFormat::ChannelsLast));
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

bool wants_channels_last(const std::string& option, const torch::nn::Module& model,
                         const Precision& precision, Device device) {
  if (option != "auto") return option == "on";
  const std::vector<std::int64_t> channels = output_channels(model);
  return device.is_cpu() && !channels.empty() && precision.has_16_bits() &&
         *std::ranges::max_element(channels) >= kManyChannels;
}

void give_channels_last(torch::nn::Module& model) {
  for (const auto& [name, layer] : layers_without_shape(model)) layer->channels_last = true;
  for (const at::Tensor& parameter : model.parameters()) put_channels_last(parameter);
  for (const at::Tensor& buffer : model.buffers()) put_channels_last(buffer);
}

Batch in_channels_last(Batch batch) {
  for (at::Tensor& tensor : batch.tensors())
    if (has_four_dimensions(tensor)) tensor = tensor.contiguous(at::MemoryFormat::ChannelsLast);
  return batch;
}

Batch Placement::convert(Batch batch) const {
  batch = in_precision(std::move(batch), precision);
  return is_channels_last ? in_channels_last(std::move(batch)) : batch;
}

AutocastScope::AutocastScope(const Precision& precision, Device device)
    : is_on_(precision.autocast.has_value()),
      device_(device.type()),
      wide_sums_(device.is_cpu() && precision.has_16_bits()) {
  if (!is_on_) return;
  had_cache_ = at::autocast::is_autocast_cache_enabled();
  was_enabled_ = at::autocast::is_autocast_enabled(device_);
  former_type_ = at::autocast::get_autocast_dtype(device_);
  at::autocast::increment_nesting();
  at::autocast::set_autocast_enabled(device_, true);
  at::autocast::set_autocast_dtype(device_, *precision.autocast);
  if (at::GradMode::is_enabled()) at::autocast::set_autocast_cache_enabled(false);
}

// The cache holds casts of weights, which the update changes.
AutocastScope::~AutocastScope() {
  if (!is_on_) return;
  if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  at::autocast::set_autocast_enabled(device_, was_enabled_);
  at::autocast::set_autocast_dtype(device_, former_type_);
  at::autocast::set_autocast_cache_enabled(had_cache_);
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
