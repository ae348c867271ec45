#pragma once

#include <cstdint>
#include <typeinfo>

#include "kindling/base/export.h"
#include "kindling/config/options.h"
#include "kindling/nn/regression_net.h"

namespace kindling {

struct LinearRegressionOptions {
  std::int64_t num_outputs = 1;
  bool scale_target = false;
  bool ignore_missing = false;

  static constexpr auto fields = kindling::fields(
      kindling::field("num_outputs", &LinearRegressionOptions::num_outputs,
                      {.doc = "number of values to predict", .min = 1}),
      kindling::field("scale_target", &LinearRegressionOptions::scale_target, {.doc = kScaleTargetDoc}),
      kindling::field("ignore_missing", &LinearRegressionOptions::ignore_missing,
                      {.doc = kIgnoreMissingDoc}));
};

// The linear regression of Dive into Deep Learning: [batch, features] → [batch, num_outputs], squared loss
// (the mean, without the factor 1/2).
class KINDLING_API LinearRegression : public RegressionNet {
 public:
  explicit LinearRegression(LinearRegressionOptions options = {});
  // True for this class only; a derived class must override it for its own step.
  bool static_step() const override { return typeid(*this) == typeid(LinearRegression); }
};

}  // namespace kindling
