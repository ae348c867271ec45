#include "kindling/models/unet.h"

#include <cstddef>
#include <string>

#include "kindling/base/error.h"
#include "models/unet_layers.h"

namespace kindling {
namespace {

void require_multiples(const at::Tensor& images, std::int64_t factor) {
  if (images.dim() != 4 || (images.size(2) % factor == 0 && images.size(3) % factor == 0)) return;
  const auto next = [&](std::int64_t side) {
    return std::to_string((images.size(side) + factor - 1) / factor * factor);
  };
  throw DataError({.place = "unet",
                   .found = "the images have " + std::to_string(images.size(2)) + " x " +
                            std::to_string(images.size(3)) + " pixels (height x width)",
                   .wanted = "multiples of " + std::to_string(factor) + ", 2 to the power of depth",
                   .remedy = "resize or crop them, for example data.size = [" + next(2) + ", " + next(3) +
                             "], or lower depth"});
}

}  // namespace

Unet::Unet(UnetOptions options) {
  validate(options, "unet");
  const auto convolutions = [](std::int64_t in, std::int64_t out) {
    return unet::two_convolutions<2>(in, out, torch::kZeros);
  };
  std::int64_t channels = options.in_channels, wide = options.width;
  for (std::int64_t level = 0; level < options.depth; ++level, wide *= 2) {
    encoder.push_back(convolutions(channels, wide));
    channels = wide;
  }
  unet::register_layers(*this, "encoder", encoder);
  bottom = register_module("bottom", convolutions(channels, wide));
  for (std::int64_t level = 0; level < options.depth; ++level, wide /= 2) {
    up.emplace_back(torch::nn::ConvTranspose2dOptions(wide, wide / 2, 2).stride(2));
    decoder.push_back(convolutions(wide, wide / 2));
  }
  unet::register_layers(*this, "up", up);
  unet::register_layers(*this, "decoder", decoder);
  head = register_module("head", torch::nn::Conv2d(torch::nn::Conv2dOptions(wide, options.num_classes, 1)));
}

at::Tensor Unet::forward(const at::Tensor& images) {
  require_multiples(images, std::int64_t{1} << encoder.size());
  return head->forward(unet::forward(images, encoder, bottom, decoder,
                                     [&](std::size_t i, const at::Tensor& x) { return up[i]->forward(x); }));
}

}  // namespace kindling
