#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <span>

#include "kindling/optim/optimizer.h"
#include "training/recorded_part.h"

namespace kindling {

// What the trainer itself does in a step on a device whose steps are recorded: what it measures of the
// gradients, and the update. Each is one start of a graph once its tensors lie where they have lain before.
class RecordedUpdate {
 public:
  // The log outlives it.
  RecordedUpdate(Device device, EpochLog& log)
      : device_(device), measured_(device, log), updated_(device, log) {}

  // `work` reads the losses and the gradients, and may change the latter.
  void measure(Optimizer& optimizer, std::span<const at::Tensor> losses, const std::function<void()>& work);
  // `work` calls step(). Rules other than LibTorch's fused ones (Adam, AdamW, Sgd) are not recorded: what
  // they do on the host may change from step to step.
  void step(Optimizer& optimizer, const std::function<void()>& work);

 private:
  Device device_;
  RecordedPart measured_, updated_;
  WorkKey key_;  // of the work at hand, in memory that stays
};

}  // namespace kindling
