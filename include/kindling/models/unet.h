#pragma once

#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>

#include <cstdint>
#include <typeinfo>
#include <vector>

#include "kindling/base/export.h"
#include "kindling/config/options.h"
#include "kindling/nn/classifier.h"

namespace kindling {

struct UnetOptions {
  std::int64_t num_classes = 2;
  std::int64_t in_channels = 3;
  std::int64_t width = 16;
  std::int64_t depth = 4;

  static constexpr auto fields = kindling::fields(
      kindling::field("num_classes", &UnetOptions::num_classes,
                      {.doc = "number of classes of a pixel, with the background", .min = 1}),
      kindling::field("in_channels", &UnetOptions::in_channels,
                      {.doc = "channels of the images: 1 for grey, 3 for RGB", .min = 1}),
      kindling::field("width", &UnetOptions::width,
                      {.doc = "channels at full resolution, doubled by each pooling; the paper has 64",
                       .min = 1,
                       .max = 1024}),
      kindling::field("depth", &UnetOptions::depth,
                      {.doc = "number of poolings; height and width must be multiples of 2 to this power",
                       .min = 1,
                       .max = 8}));
};

// U-Net for semantic segmentation (Ronneberger, Fischer and Brox, "U-Net: Convolutional Networks for
// Biomedical Image Segmentation", MICCAI 2015): two 3 x 3 convolutions per level, 2 x 2 max-pooling on the
// way down, 2 x 2 transposed convolutions and the features of the same level on the way up. Two things differ
// from the paper: convolutions are padded, so that the logits have the size of the images, and each is
// followed by batch normalization instead of having a bias. Initial values are PyTorch's defaults.
// [batch, in_channels, height, width] → logits [batch, num_classes, height, width].
class KINDLING_API Unet : public Classifier {
 public:
  // Throws ConfigError for options out of range.
  explicit Unet(UnetOptions options = {});

  // Throws DataError for a height or width that is not a multiple of 2^depth.
  at::Tensor forward(const at::Tensor& images) override;
  // True for this class only; a derived class must override it for its own step.
  bool static_step() const override { return typeid(*this) == typeid(Unet); }

  // From full resolution to the lowest, and back.
  std::vector<torch::nn::Sequential> encoder, decoder;
  std::vector<torch::nn::ConvTranspose2d> up;
  torch::nn::Sequential bottom{nullptr};
  torch::nn::Conv2d head{nullptr};
};

}  // namespace kindling
