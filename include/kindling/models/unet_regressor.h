#pragma once

#include <torch/nn/modules/container/any.h>
#include <torch/nn/modules/container/sequential.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <typeinfo>
#include <vector>

#include "kindling/base/export.h"
#include "kindling/config/options.h"
#include "kindling/nn/regressor.h"

namespace kindling {

struct UnetRegressorOptions {
  std::int64_t in_channels = 0, out_channels = 0;
  std::int64_t dims = 2;
  std::int64_t width = 16, depth = 3;
  std::string padding_mode = "zeros";
  bool residual = false;
  bool scale_target = false, ignore_missing = false;

  static constexpr auto fields = kindling::fields(
      kindling::field(
          "in_channels", &UnetRegressorOptions::in_channels,
          {.doc = "channels of the inputs; 0: they have no dimension of channels, [batch, height, "
                  "width]",
           .min = 0}),
      kindling::field("out_channels", &UnetRegressorOptions::out_channels,
                      {.doc = "channels of the targets; 0: they have no dimension of channels", .min = 0}),
      kindling::field("dims", &UnetRegressorOptions::dims,
                      {.doc = "dimensions of space: 1 for [batch, channels, length], 2 for [batch, channels, "
                              "height, width], 3 for volumes",
                       .min = 1,
                       .max = 3}),
      kindling::field("width", &UnetRegressorOptions::width,
                      {.doc = "channels at full resolution, doubled by each pooling", .min = 1, .max = 1024}),
      kindling::field("depth", &UnetRegressorOptions::depth,
                      {.doc = "number of poolings", .min = 1, .max = 8}),
      kindling::field("padding_mode", &UnetRegressorOptions::padding_mode,
                      {.doc = "what the convolutions see beyond the edges; circular: the opposite edge, for "
                              "periodic fields",
                       .choices = "zeros|replicate|circular"}),
      kindling::field("residual", &UnetRegressorOptions::residual,
                      {.doc = "the layers predict the change from the inputs, which are added to it; the "
                              "targets have their shape"}),
      kindling::field("scale_target", &UnetRegressorOptions::scale_target, {.doc = kScaleTargetDoc}),
      kindling::field("ignore_missing", &UnetRegressorOptions::ignore_missing, {.doc = kIgnoreMissingDoc}));
};

// The layers of Unet, for fields of numbers in one to three dimensions of space, with the mean squared error:
// [batch, in_channels, …] → [batch, out_channels, …], both of the same size in space. Sizes that are not
// multiples of 2^depth are padded at their end (circular for periodic fields, else with the last values), and
// the outputs are cut to the size of the inputs.
class KINDLING_API UnetRegressor : public Regressor {
 public:
  // Throws ConfigError for options out of range, and for `residual` with other targets than inputs.
  explicit UnetRegressor(UnetRegressorOptions options = {});

  // Throws DataError for inputs of another number of dimensions or channels, and for sizes that are less than
  // half of 2^depth.
  at::Tensor forward(const at::Tensor& inputs) override;
  // Throws DataError for targets of other sizes than the outputs.
  at::Tensor loss(const at::Tensor& outputs, const at::Tensor& labels) override;
  // True for this class only; a derived class must override it for its own step.
  bool static_step() const override { return typeid(*this) == typeid(UnetRegressor); }

  std::int64_t space_dims() const override { return options_.dims; }

  // From full resolution to the lowest, and back.
  std::vector<torch::nn::Sequential> encoder, decoder;
  std::vector<torch::nn::AnyModule> up;  // ConvTranspose1d, ConvTranspose2d or ConvTranspose3d
  torch::nn::Sequential bottom{nullptr};
  torch::nn::AnyModule head;  // Conv1d, Conv2d or Conv3d

 private:
  template <std::size_t D>
  void make_layers();
  [[noreturn]] void refuse_inputs(const at::Tensor& inputs) const;

  UnetRegressorOptions options_;
};

}  // namespace kindling
