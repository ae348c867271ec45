#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/max_pool1d.h>
#include <ATen/ops/max_pool2d.h>
#include <ATen/ops/max_pool3d.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/any.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>

#include <cstddef>
#include <cstdint>
#include <vector>

// The layers of a U-Net for fields in one to three dimensions of space.
namespace kindling::unet {

template <std::size_t Dims>
struct LayersOf;
template <>
struct LayersOf<1> {
  using Convolution = torch::nn::Conv1d;
  using Transposed = torch::nn::ConvTranspose1d;
  using Norm = torch::nn::BatchNorm1d;
};
template <>
struct LayersOf<2> {
  using Convolution = torch::nn::Conv2d;
  using Transposed = torch::nn::ConvTranspose2d;
  using Norm = torch::nn::BatchNorm2d;
};
template <>
struct LayersOf<3> {
  using Convolution = torch::nn::Conv3d;
  using Transposed = torch::nn::ConvTranspose3d;
  using Norm = torch::nn::BatchNorm3d;
};

template <std::size_t Dims>
torch::nn::Sequential two_convolutions(std::int64_t in, std::int64_t out,
                                       const torch::nn::detail::conv_padding_mode_t& padding_mode) {
  // One by one, because C++ leaves the order of arguments open, and with it that of the random numbers. The
  // batch normalization has its own shift.
  torch::nn::Sequential layers;
  for (const std::int64_t from : {in, out}) {
    layers->push_back(typename LayersOf<Dims>::Convolution(
        torch::nn::ConvOptions<Dims>(from, out, 3).padding(1).padding_mode(padding_mode).bias(false)));
    layers->push_back(typename LayersOf<Dims>::Norm(out));
    layers->push_back(torch::nn::ReLU());
  }
  return layers;
}

template <class Layers>
void register_layers(torch::nn::Module& model, const char* name, const Layers& layers) {
  torch::nn::ModuleList list;
  for (const auto& layer : layers) list->push_back(layer.ptr());
  model.register_module(name, list);
}

// x: [batch, channels, …], in `dims` dimensions of space.
inline at::Tensor pooled(const at::Tensor& x, std::int64_t dims) {
  return dims == 1 ? at::max_pool1d(x, 2) : dims == 2 ? at::max_pool2d(x, 2) : at::max_pool3d(x, 2);
}

// `raise`: applies the transposed convolution of a level to an input.
template <class Raise>
at::Tensor forward(const at::Tensor& input, std::vector<torch::nn::Sequential>& encoder,
                   torch::nn::Sequential& bottom, std::vector<torch::nn::Sequential>& decoder, Raise raise) {
  at::Tensor x = input;
  std::vector<at::Tensor> skipped;
  for (torch::nn::Sequential& level : encoder) {
    skipped.push_back(level->forward(x));
    x = pooled(skipped.back(), input.dim() - 2);
  }
  x = bottom->forward(x);
  for (std::size_t i = 0; i < decoder.size(); ++i) {
    x = decoder[i]->forward(at::cat({skipped.back(), raise(i, x)}, 1));
    skipped.pop_back();
  }
  return x;
}

}  // namespace kindling::unet
