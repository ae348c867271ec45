#pragma once

#include <torch/nn/modules/container/sequential.h>

#include <cstdint>

#include "kindling/base/export.h"
#include "kindling/config/options.h"
#include "kindling/nn/classifier.h"

namespace kindling {

struct SoftmaxRegressionOptions {
  std::int64_t num_classes = 10;

  static constexpr auto fields = kindling::fields(
      kindling::field("num_classes", &SoftmaxRegressionOptions::num_classes, {.doc = "classes", .min = 1}));
};

// The textbook's softmax regression: flatten, one linear layer. [batch, …] → logits [batch, num_classes].
class KINDLING_API SoftmaxRegression : public Classifier {
 public:
  explicit SoftmaxRegression(SoftmaxRegressionOptions options = {});
  at::Tensor forward(const at::Tensor& inputs) override;

  torch::nn::Sequential net;
};

}  // namespace kindling
