#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

#include "kindling/base/export.h"
#include "kindling/nn/module.h"
#include "kindling/nn/sequential_net.h"

namespace kindling {

// A chain of layers that predicts numbers, [batch, num_targets], with the mean squared error.
//
// With a target scale, the layers predict (target - mean) / std, and forward() returns std * that + mean:
// outputs, losses and metrics are in the unit of the labels. Only the gradient is that of the mean squared
// error of the scaled targets, so that the learning rate need not fit the unit. The scale is the buffers
// `target_mean` and `target_std`, float32 [num_targets]; exported programs contain it.
class KINDLING_API RegressionNet : public SequentialNet<Module> {
 public:
  at::Tensor forward(const at::Tensor& inputs) override;
  // Throws DataError for integer labels and for a shape that differs from the outputs', which LibTorch would
  // broadcast.
  at::Tensor loss(const at::Tensor& outputs, const at::Tensor& labels) override;

  bool is_regressor() const override { return true; }

  bool scales_targets() const noexcept { return target_std_.defined(); }
  // Takes the scale from training labels, [samples, num_targets] of any dtype on the CPU: their mean and
  // standard deviation (with n in the denominator), computed in double; 1 for a constant. Throws Error for a
  // model that was made without scale_target, and DataError for another shape and for values that are not
  // finite.
  void fit_target_scale(const at::Tensor& labels);

 protected:
  // `name`: of the class, for messages.
  RegressionNet(const torch::nn::Sequential& layers, std::string name, std::int64_t num_targets,
                bool scale_target);

 private:
  std::string name_;
  at::Tensor target_mean_, target_std_;  // undefined: not scaled
};

}  // namespace kindling
