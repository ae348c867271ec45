#pragma once

#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include <cstdint>
#include <typeinfo>

#include "kindling/base/export.h"
#include "kindling/config/options.h"
#include "kindling/nn/classifier.h"

namespace kindling {

struct Resnet18Options {
  std::int64_t num_classes = 10;
  std::int64_t in_channels = 3;
  bool small_images = false;

  static constexpr auto fields = kindling::fields(
      kindling::field("num_classes", &Resnet18Options::num_classes, {.doc = "number of classes", .min = 1}),
      kindling::field("in_channels", &Resnet18Options::in_channels,
                      {.doc = "channels of the images: 1 for grey, 3 for RGB", .min = 1}),
      kindling::field("small_images", &Resnet18Options::small_images,
                      {.doc = "first convolution 3 x 3 with stride 1 and no max-pooling, for images of about "
                              "32 x 32 pixels"}));
};

// ResNet-18 (He, Zhang, Ren and Sun, "Deep Residual Learning for Image Recognition", CVPR 2016), with the
// parameter names, initial values and order of random numbers of torchvision.models.resnet18: the same seed
// gives the same weights, and weights from Python load by name. ImageNet weights need num_classes = 1000.
// [batch, in_channels, height, width] → logits [batch, num_classes]. All parameters exist after construction.
class KINDLING_API Resnet18 : public Classifier {
 public:
  // Throws ConfigError for options out of range.
  explicit Resnet18(Resnet18Options options = {});

  at::Tensor forward(const at::Tensor& images) override;
  // True for this class only; a derived class must override it for its own step.
  bool static_step() const override { return typeid(*this) == typeid(Resnet18); }

  torch::nn::Conv2d conv1{nullptr};
  torch::nn::BatchNorm2d bn1{nullptr};
  torch::nn::Sequential layer1{nullptr}, layer2{nullptr}, layer3{nullptr}, layer4{nullptr};
  torch::nn::Linear fc{nullptr};

 private:
  bool small_images_;
};

}  // namespace kindling
