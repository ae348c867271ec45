#include "kindling/models/resnet18.h"

#include <ATen/Functions.h>
#include <torch/nn/init.h>

#include <memory>

namespace kindling {
namespace {

torch::nn::Conv2d convolution(std::int64_t in, std::int64_t out, std::int64_t size, std::int64_t stride) {
  // The following batch normalization has its own shift.
  return torch::nn::Conv2d(
      torch::nn::Conv2dOptions(in, out, size).stride(stride).padding(size / 2).bias(false));
}

// Two convolutions whose result is added to the input, which `downsample` fits to their shape if needed.
class ResidualBlock : public torch::nn::Module {
 public:
  ResidualBlock(std::int64_t in, std::int64_t out, std::int64_t stride) {
    // torchvision draws the random numbers of `downsample` first, and registers it last.
    if (stride != 1 || in != out)
      downsample_ = torch::nn::Sequential(convolution(in, out, 1, stride), torch::nn::BatchNorm2d(out));
    conv1_ = register_module("conv1", convolution(in, out, 3, stride));
    bn1_ = register_module("bn1", torch::nn::BatchNorm2d(out));
    conv2_ = register_module("conv2", convolution(out, out, 3, 1));
    bn2_ = register_module("bn2", torch::nn::BatchNorm2d(out));
    if (!downsample_.is_empty()) register_module("downsample", downsample_);
  }

  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor inner = at::relu(bn1_->forward(conv1_->forward(x)));
    const at::Tensor change = bn2_->forward(conv2_->forward(inner));
    return at::relu(change + (downsample_.is_empty() ? x : downsample_->forward(x)));
  }

 private:
  torch::nn::Sequential downsample_{nullptr};
  torch::nn::Conv2d conv1_{nullptr}, conv2_{nullptr};
  torch::nn::BatchNorm2d bn1_{nullptr}, bn2_{nullptr};
};

torch::nn::Sequential residual_layer(std::int64_t in, std::int64_t out, std::int64_t stride) {
  torch::nn::Sequential layer;
  layer->push_back(std::make_shared<ResidualBlock>(in, out, stride));
  layer->push_back(std::make_shared<ResidualBlock>(out, out, 1));
  return layer;
}

}  // namespace

Resnet18::Resnet18(Resnet18Options options) : small_images_(options.small_images) {
  validate(options, "resnet18");
  const auto stem = [&] {
    return small_images_ ? convolution(options.in_channels, 64, 3, 1)
                         : convolution(options.in_channels, 64, 7, 2);
  };
  conv1 = register_module("conv1", stem());
  bn1 = register_module("bn1", torch::nn::BatchNorm2d(64));
  layer1 = register_module("layer1", residual_layer(64, 64, 1));
  layer2 = register_module("layer2", residual_layer(64, 128, 2));
  layer3 = register_module("layer3", residual_layer(128, 256, 2));
  layer4 = register_module("layer4", residual_layer(256, 512, 2));
  fc = register_module("fc", torch::nn::Linear(512, options.num_classes));
  // Batch norm has its ones and zeros from its constructor.
  for (const auto& layer : modules(/*include_self=*/false))
    if (const auto* conv = layer->as<torch::nn::Conv2d>())
      torch::nn::init::kaiming_normal_(conv->weight, 0, torch::kFanOut, torch::kReLU);
}

at::Tensor Resnet18::forward(const at::Tensor& images) {
  at::Tensor x = at::relu(bn1->forward(conv1->forward(images)));
  if (!small_images_) x = at::max_pool2d(x, 3, 2, 1);
  for (auto* layer : {&layer1, &layer2, &layer3, &layer4}) x = (*layer)->forward(x);
  return fc->forward(at::flatten(at::adaptive_avg_pool2d(x, {1, 1}), 1));
}

}  // namespace kindling
