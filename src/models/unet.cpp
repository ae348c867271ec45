#include "kindling/models/unet.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/max_pool2d.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/modulelist.h>

#include <cstddef>
#include <string>

#include "kindling/base/error.h"

namespace kindling {
namespace {

// The following batch normalization has its own shift.
torch::nn::Conv2d padded_convolution(std::int64_t in, std::int64_t out) {
  return torch::nn::Conv2d(torch::nn::Conv2dOptions(in, out, 3).padding(1).bias(false));
}

torch::nn::Sequential two_convolutions(std::int64_t in, std::int64_t out) {
  // One by one, because C++ leaves the order of arguments open, and with it that of the random numbers.
  torch::nn::Sequential layers;
  for (const std::int64_t from : {in, out}) {
    layers->push_back(padded_convolution(from, out));
    layers->push_back(torch::nn::BatchNorm2d(out));
    layers->push_back(torch::nn::ReLU());
  }
  return layers;
}

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

template <class Layers>
void register_layers(torch::nn::Module& model, const char* name, const Layers& layers) {
  torch::nn::ModuleList list;
  for (const auto& layer : layers) list->push_back(layer);
  model.register_module(name, list);
}

}  // namespace

Unet::Unet(UnetOptions options) {
  validate(options, "unet");
  std::int64_t channels = options.in_channels, wide = options.width;
  for (std::int64_t level = 0; level < options.depth; ++level, wide *= 2) {
    encoder.push_back(two_convolutions(channels, wide));
    channels = wide;
  }
  register_layers(*this, "encoder", encoder);
  bottom = register_module("bottom", two_convolutions(channels, wide));
  for (std::int64_t level = 0; level < options.depth; ++level, wide /= 2) {
    up.emplace_back(torch::nn::ConvTranspose2dOptions(wide, wide / 2, 2).stride(2));
    decoder.push_back(two_convolutions(wide, wide / 2));
  }
  register_layers(*this, "up", up);
  register_layers(*this, "decoder", decoder);
  head = register_module("head", torch::nn::Conv2d(torch::nn::Conv2dOptions(wide, options.num_classes, 1)));
}

at::Tensor Unet::forward(const at::Tensor& images) {
  require_multiples(images, std::int64_t{1} << encoder.size());
  at::Tensor x = images;
  std::vector<at::Tensor> skipped;
  for (torch::nn::Sequential& level : encoder) {
    skipped.push_back(level->forward(x));
    x = at::max_pool2d(skipped.back(), 2);
  }
  x = bottom->forward(x);
  for (std::size_t i = 0; i < decoder.size(); ++i) {
    x = decoder[i]->forward(at::cat({skipped.back(), up[i]->forward(x)}, 1));
    skipped.pop_back();
  }
  return head->forward(x);
}

}  // namespace kindling
