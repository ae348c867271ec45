#include "kindling/models/unet_regressor.h"

#include <ATen/ops/pad.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include "kindling/base/error.h"
#include "models/unet_layers.h"
#include "tensors/shape_text.h"

namespace kindling {
namespace {

constexpr const char* kUnetRegressor = "unet_regressor";

torch::nn::detail::conv_padding_mode_t padding_mode_of(const std::string& name) {
  if (name == "circular") return torch::kCircular;
  if (name == "replicate") return torch::kReplicate;
  return torch::kZeros;
}

const UnetRegressorOptions& checked(const UnetRegressorOptions& options) {
  validate(options, kUnetRegressor);
  if (options.residual && options.in_channels != options.out_channels)
    throw ConfigError({.place = std::string(kUnetRegressor) + ": residual",
                       .found = "in_channels is " + std::to_string(options.in_channels) +
                                ", and out_channels is " + std::to_string(options.out_channels),
                       .wanted = "targets with the channels of the inputs"});
  return options;
}

// Pads fields [batch, channels, …] at the end of each dimension of space to a multiple of 2^depth.
at::Tensor padded_to_multiples(const at::Tensor& fields, std::size_t depth, bool is_periodic) {
  const std::int64_t factor = std::int64_t{1} << depth;
  std::vector<std::int64_t> pads;  // before and after, of the last dimension first
  for (std::int64_t i = fields.dim() - 1; i >= 2; --i) {
    const std::int64_t size = fields.size(i), pad = (factor - size % factor) % factor;
    if (pad > size)
      throw DataError(
          {.place = std::string(kUnetRegressor) + ": depth",
           .found = "the fields have the size " + shape_text(fields.sizes().slice(2)) + ", and depth is " +
                    std::to_string(depth),
           .wanted = "sizes of at least half of 2 to the power of depth, " + std::to_string((factor + 1) / 2),
           .remedy = "lower model.depth"});
    pads.insert(pads.end(), {0, pad});
  }
  if (std::ranges::all_of(pads, [](std::int64_t pad) { return pad == 0; })) return fields;
  return at::pad(fields, pads, is_periodic ? "circular" : "replicate");
}

std::int64_t at_least_one(std::int64_t channels) { return std::max<std::int64_t>(channels, 1); }

}  // namespace

UnetRegressor::UnetRegressor(UnetRegressorOptions options)
    : Regressor("UnetRegressor", {.num_targets = at_least_one(checked(options).out_channels),
                                  .scale_target = options.scale_target,
                                  .ignore_missing = options.ignore_missing,
                                  .has_channels = options.out_channels > 0}),
      options_(std::move(options)) {
  if (options_.dims == 1)
    make_layers<1>();
  else if (options_.dims == 2)
    make_layers<2>();
  else
    make_layers<3>();
}

template <std::size_t D>
void UnetRegressor::make_layers() {
  const auto padding_mode = padding_mode_of(options_.padding_mode);
  const auto convolutions = [&](std::int64_t in, std::int64_t out) {
    return unet::two_convolutions<D>(in, out, padding_mode);
  };
  using Layers = unet::LayersOf<D>;
  std::int64_t channels = at_least_one(options_.in_channels), wide = options_.width;
  for (std::int64_t level = 0; level < options_.depth; ++level, wide *= 2) {
    encoder.push_back(convolutions(channels, wide));
    channels = wide;
  }
  unet::register_layers(*this, "encoder", encoder);
  bottom = register_module("bottom", convolutions(channels, wide));
  for (std::int64_t level = 0; level < options_.depth; ++level, wide /= 2) {
    up.emplace_back(
        typename Layers::Transposed(torch::nn::ConvTransposeOptions<D>(wide, wide / 2, 2).stride(2)));
    decoder.push_back(convolutions(wide, wide / 2));
  }
  unet::register_layers(*this, "up", up);
  unet::register_layers(*this, "decoder", decoder);
  typename Layers::Convolution last(torch::nn::ConvOptions<D>(wide, at_least_one(options_.out_channels), 1));
  head = torch::nn::AnyModule(register_module("head", last));
}

void UnetRegressor::refuse_inputs(const at::Tensor& inputs) const {
  constexpr const char* kSpace[] = {"length", "height, width", "depth, height, width"};
  const std::int64_t dims = options_.dims, channels = options_.in_channels;
  std::string remedy = "set model.dims to the dimensions of space";
  if (inputs.dim() == dims + 2)
    remedy = "set model.in_channels = " + std::to_string(inputs.size(1));
  else if (inputs.dim() == dims + 1)
    remedy = "set model.in_channels = 0 for inputs without channels";
  throw DataError(
      {.place = kUnetRegressor,
       .found = "the inputs are " + type_text(inputs),
       .wanted = "[batch, " + (channels > 0 ? std::to_string(channels) + ", " : "") + kSpace[dims - 1] + "]",
       .remedy = remedy});
}

at::Tensor UnetRegressor::forward(const at::Tensor& inputs) {
  const bool has_channels = options_.in_channels > 0;
  const std::int64_t dims = options_.dims;
  if (inputs.dim() != dims + (has_channels ? 2 : 1) ||
      (has_channels && inputs.size(1) != options_.in_channels))
    refuse_inputs(inputs);
  const at::Tensor fields = has_channels ? inputs : inputs.unsqueeze(1);

  at::Tensor x = padded_to_multiples(fields, encoder.size(), options_.padding_mode == "circular");
  x = unet::forward(x, encoder, bottom, decoder,
                    [&](std::size_t i, const at::Tensor& low) { return up[i].forward<at::Tensor>(low); });
  x = head.forward<at::Tensor>(x);
  for (std::int64_t i = 2; i < x.dim(); ++i)
    if (x.size(i) != fields.size(i)) x = x.narrow(i, 0, fields.size(i));
  x = options_.residual ? fields + unscaled_change(x) : unscaled(x);
  return options_.out_channels == 0 ? x.squeeze(1) : x;
}

at::Tensor UnetRegressor::loss(const at::Tensor& outputs, const at::Tensor& labels) {
  const bool has_channels = labels.dim() == options_.dims + 2;
  if (outputs.sizes() != labels.sizes() && (has_channels || labels.dim() == options_.dims + 1))
    throw DataError(
        {.place = kUnetRegressor,
         .found = "the targets are " + type_text(labels) + ", and the outputs " + type_text(outputs),
         .wanted = "the same sizes",
         .remedy = "set model.out_channels = " + std::to_string(has_channels ? labels.size(1) : 0)});
  return Regressor::loss(outputs, labels);
}

}  // namespace kindling
