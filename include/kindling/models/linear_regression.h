#pragma once

#include <cstdint>
#include <typeinfo>

#include "kindling/base/export.h"
#include "kindling/config/options.h"
#include "kindling/nn/module.h"
#include "kindling/nn/sequential_net.h"

namespace kindling {

struct LinearRegressionOptions {
  std::int64_t num_outputs = 1;

  static constexpr auto fields =
      kindling::fields(kindling::field("num_outputs", &LinearRegressionOptions::num_outputs,
                                       {.doc = "number of values to predict", .min = 1}));
};

// The linear regression of Dive into Deep Learning: [batch, features] → [batch, num_outputs], squared loss
// (the mean, without the factor 1/2).
class KINDLING_API LinearRegression : public SequentialNet<Module> {
 public:
  explicit LinearRegression(LinearRegressionOptions options = {});
  // Throws DataError for integer labels and for a shape that differs from the outputs', which LibTorch would
  // broadcast.
  at::Tensor loss(const at::Tensor& outputs, const at::Tensor& labels) override;
  // True for this class only; a derived class must override it for its own step.
  bool static_step() const override { return typeid(*this) == typeid(LinearRegression); }
};

}  // namespace kindling
