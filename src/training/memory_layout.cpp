#include "training/memory_layout.h"

#include <torch/nn/module.h>

#include <algorithm>

#include "kindling/nn/lazy_conv2d.h"
#include "tensors/state_fit.h"

namespace kindling {
namespace {

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

bool wants_channels_last(const std::string& option, const torch::nn::Module& model,
                         const Precision& precision, Device device) {
  if (option != "auto") return option == "on";
  const std::vector<std::int64_t> channels = output_channels(model);
  const bool has_16_bits = precision.autocast || precision.weights == at::kBFloat16;
  return device.is_cpu() && !channels.empty() && has_16_bits &&
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

}  // namespace kindling
