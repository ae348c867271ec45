#pragma once

#include <kindling/config/options.h>
#include <kindling/nn/classifier.h>
#include <kindling/nn/lazy_linear.h>
#include <torch/nn/modules/container/modulelist.h>

struct ResidualMlpOptions {
  std::int64_t width = 32;
  std::int64_t depth = 2;
  std::int64_t num_classes = 2;

  static constexpr auto fields = kindling::fields(
      kindling::field("width", &ResidualMlpOptions::width, {.doc = "width of every hidden layer", .min = 1}),
      kindling::field("depth", &ResidualMlpOptions::depth, {.doc = "residual layers", .min = 0}),
      kindling::field("num_classes", &ResidualMlpOptions::num_classes, {.doc = "classes", .min = 2}));
};

// x → x + relu(linear(x)), `depth` times: [batch, features] → logits [batch, num_classes].
class ResidualMlp : public kindling::Classifier {
 public:
  explicit ResidualMlp(ResidualMlpOptions options);

  torch::Tensor forward(const torch::Tensor& inputs) override;
  // Used when the config has no [optimizer].
  std::unique_ptr<kindling::Optimizer> configure_optimizers() override;

 private:
  kindling::LazyLinear first_, last_;
  torch::nn::ModuleList hidden_;
};
