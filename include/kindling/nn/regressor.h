#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <string>

#include "kindling/base/export.h"
#include "kindling/nn/module.h"

namespace kindling {

// The sentence that `kindling options` prints for scale_target.
inline constexpr const char* kScaleTargetDoc =
    "train on targets of mean 0 and standard deviation 1; outputs, losses and metrics keep the unit of the "
    "data";
// The same for ignore_missing.
inline constexpr const char* kIgnoreMissingDoc =
    "targets that are NaN, missing values, do not count in the loss and in metrics";

// What Regressor is made with.
struct RegressorOptions {
  std::int64_t num_targets = 1;  // or channels of a field
  bool scale_target = false;
  bool ignore_missing = false;  // labels that are NaN do not count in the loss
  bool has_channels = true;  // false: targets are fields [batch, …] of one channel, without its dimension
};

// A model that predicts numbers, [batch, num_targets] or fields [batch, num_targets, …], with the mean
// squared error. Derive from it, and return unscaled() of the outputs from forward().
//
// With a target scale, the layers predict (target - mean) / std, and unscaled() returns std * that + mean:
// outputs, losses and metrics are in the unit of the labels. Only the gradient is that of the mean squared
// error of the scaled targets, so that the learning rate need not fit the unit. The scale is the buffers
// `target_mean` and `target_std`, float32 [num_targets]; exported programs contain it.
//
// With ignore_missing, the loss is the mean over the labels that are not NaN, and is weighted by their number
// (Module::weighted()). Without any, it is 0 and does not count in means; a step without any is skipped on
// the CPU, and an update with gradients of 0 elsewhere.
class KINDLING_API Regressor : public Module {
 public:
  // The mean squared error. Throws DataError for integer labels and for a shape that differs from the
  // outputs', which LibTorch would broadcast.
  at::Tensor loss(const at::Tensor& outputs, const at::Tensor& labels) override;

  bool is_regressor() const override { return true; }
  const RegressorOptions& regressor_options() const noexcept { return options_; }

  bool scales_targets() const noexcept { return target_std_.defined(); }
  // Takes the scale from training labels, [samples, num_targets, …] of any dtype, or fields without a
  // dimension of channels. The mean and standard deviation (with n in the denominator) of each target are
  // computed in double; 1 for a constant. NaN does not count with ignore_missing. Throws Error for a model
  // that was made without scale_target, and DataError for another shape, for values that are not finite, and
  // for a target without any.
  void fit_target_scale(const at::Tensor& labels);
  // The same for labels that do not fit into memory: `next_part` returns some of the samples at each call,
  // and an undefined tensor after the last ones.
  void fit_target_scale(const std::function<at::Tensor()>& next_part);

 protected:
  // `name`: of the class, for messages.
  Regressor(std::string name, const RegressorOptions& options);

  // Undoes the target scale for outputs of the layers, [batch, num_targets, …]. Returns them without one.
  at::Tensor unscaled(const at::Tensor& outputs) const;
  // The same for outputs that are differences of targets: std * outputs.
  at::Tensor unscaled_change(const at::Tensor& outputs) const;

 private:
  std::string name_;
  RegressorOptions options_;
  at::Tensor target_mean_, target_std_;  // undefined: not scaled
};

}  // namespace kindling
