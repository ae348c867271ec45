#pragma once

#include <ATen/core/Tensor.h>

#include "kindling/optim/optimizer.h"
#include "kindling/tensors/state_dict.h"

namespace kindling {

// Keeps small float16 gradients from vanishing: multiplies losses by a scale, and divides the gradients by it
// before they are used. A step with non-finite gradients is skipped and halves the scale; many finite ones in
// a row double it. All of this happens on the device, without a wait. Defaults and rule are those of
// torch.amp.GradScaler, except that the scale never falls below kLowestScale: torch's falls to 0 after 166
// such steps. From 2⁻¹²⁸ on its reciprocal is infinite, and the next finite step makes all weights NaN.
class GradScaler {
 public:
  // The smallest positive float16, whose reciprocal is finite.
  static constexpr double kLowestScale = 0x1p-24;

  explicit GradScaler(Device device);

  // Returns the gradient of a loss that backward starts from, of its shape and type: the factor times the
  // scale.
  at::Tensor seed(const at::Tensor& loss, double factor = 1) const;
  at::Tensor seed(const at::Tensor& loss, const at::Tensor& factor) const;  // a number on its device
  // Divides the gradients by the scale and notes whether one of them is not finite.
  void unscale(Optimizer& optimizer);
  const at::Tensor& found_inf() const noexcept { return found_inf_; }  // float32 scalar, 1: yes
  const at::Tensor& scale() const noexcept { return scale_; }          // float32 scalar
  // Called after the step with whether gradients of any of its updates were not finite.
  void adjust(const at::Tensor& found_inf);

  void save(StateDict& state) const;
  // Throws CheckpointError.
  void load(const StateDict& state);

 private:
  at::Tensor scale_, growth_tracker_, found_inf_;
};

}  // namespace kindling
