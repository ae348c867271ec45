#pragma once

#include <cstdint>
#include <typeinfo>

#include "kindling/base/export.h"
#include "kindling/config/options.h"
#include "kindling/nn/classifier.h"
#include "kindling/nn/sequential_net.h"

namespace kindling {

struct SoftmaxRegressionOptions {
  std::int64_t num_classes = 10;

  static constexpr auto fields = kindling::fields(kindling::field(
      "num_classes", &SoftmaxRegressionOptions::num_classes, {.doc = "number of classes", .min = 1}));
};

// The softmax regression of Dive into Deep Learning: flatten, one linear layer. [batch, …] → logits [batch,
// num_classes].
class KINDLING_API SoftmaxRegression : public SequentialNet<Classifier> {
 public:
  explicit SoftmaxRegression(SoftmaxRegressionOptions options = {});
  // True for this class only; a derived class must override it for its own step.
  bool static_step() const override { return typeid(*this) == typeid(SoftmaxRegression); }
};

}  // namespace kindling
