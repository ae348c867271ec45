#pragma once

#include <ATen/core/Tensor.h>

#include "kindling/optim/optimizer.h"
#include "kindling/tensors/state_dict.h"

namespace kindling {

// Keeps small gradients of float16 from vanishing: losses are multiplied by a scale, the gradients divided by
// it before anybody looks at them. A step whose gradients are not finite is left out and halves the scale;
// many good ones in a row double it. All of it happens on the device, without a wait. Numbers and rule are
// those of torch.amp.GradScaler.
class GradScaler {
 public:
  explicit GradScaler(Device device);

  const at::Tensor& scale() const noexcept { return scale_; }  // float32 scalar on the device
  // Divides the gradients by the scale and notes whether one of them is not finite.
  void unscale(Optimizer& optimizer);
  const at::Tensor& found_inf() const noexcept { return found_inf_; }  // float32 scalar, 1: yes
  // After the step, by whether gradients of any of its updates were not finite.
  void adjust(const at::Tensor& found_inf);

  void save(StateDict& state) const;
  // Throws CheckpointError.
  void load(const StateDict& state);

 private:
  at::Tensor scale_, growth_tracker_, found_inf_;
};

}  // namespace kindling
