#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <utility>

#include "kindling/base/export.h"
#include "kindling/nn/regressor.h"
#include "kindling/nn/sequential_net.h"

namespace kindling {

// A chain of layers that predicts numbers, [batch, num_targets]. See Regressor for the loss and the scale of
// the targets.
class KINDLING_API RegressionNet : public SequentialNet<Regressor> {
 public:
  at::Tensor forward(const at::Tensor& inputs) override;

 protected:
  // `name`: of the class, for messages.
  RegressionNet(const torch::nn::Sequential& layers, std::string name, const RegressorOptions& options);
  RegressionNet(const torch::nn::Sequential& layers, std::string name, std::int64_t num_targets,
                bool scale_target)
      : RegressionNet(layers, std::move(name), {.num_targets = num_targets, .scale_target = scale_target}) {}
};

}  // namespace kindling
