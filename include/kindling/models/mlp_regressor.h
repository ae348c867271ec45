#pragma once

#include <cstdint>
#include <string>
#include <typeinfo>
#include <vector>

#include "kindling/base/export.h"
#include "kindling/config/options.h"
#include "kindling/nn/regression_net.h"

namespace kindling {

struct MlpRegressorOptions {
  std::vector<std::int64_t> hidden{64, 64};
  std::int64_t num_targets = 1;
  std::string activation = "relu";
  double dropout = 0;
  bool scale_target = false;
  bool ignore_missing = false;

  static constexpr auto fields = kindling::fields(
      kindling::field("hidden", &MlpRegressorOptions::hidden,
                      {.doc = "widths of the hidden layers", .min = 1}),
      kindling::field("num_targets", &MlpRegressorOptions::num_targets,
                      {.doc = "number of values to predict", .min = 1}),
      kindling::field("activation", &MlpRegressorOptions::activation,
                      {.doc = "function after each hidden layer", .choices = "relu|gelu|silu|tanh|sigmoid"}),
      kindling::field(
          "dropout", &MlpRegressorOptions::dropout,
          {.doc = "dropout probability after each hidden layer", .min = 0, .max = 1, .max_excluded = true}),
      kindling::field("scale_target", &MlpRegressorOptions::scale_target, {.doc = kScaleTargetDoc}),
      kindling::field("ignore_missing", &MlpRegressorOptions::ignore_missing, {.doc = kIgnoreMissingDoc}));
};

// A multilayer perceptron that predicts numbers: [batch, …] → [batch, num_targets], mean squared error. The
// chain of layers is flatten, then (linear, activation, dropout) per hidden layer, then linear, as in
// PyTorch's nn.Sequential; without dropout there is no layer for it, so that the names of the parameters are
// those of Mlp.
class KINDLING_API MlpRegressor : public RegressionNet {
 public:
  // Throws ConfigError.
  explicit MlpRegressor(MlpRegressorOptions options = {});
  // True for this class only; a derived class must override it for its own step.
  bool static_step() const override { return typeid(*this) == typeid(MlpRegressor); }
};

}  // namespace kindling
