#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <span>

#include "training/capture/captured_region.h"
#include "training/step/optimizer_update.h"

namespace kindling {

// The trainer's own part of a step on a device whose steps are captured: what it measures of the gradients, and
// the update. Each is one graph launch once its tensors are where they were when it was captured.
class CapturedUpdate : public UpdateCapture {
 public:
  // The log outlives it.
  CapturedUpdate(Device device, EpochLog& log)
      : device_(device), measured_(device, log), updated_(device, log) {}

  void measure(Optimizer& optimizer, std::span<const at::Tensor> losses,
               const std::function<void()>& work) override;
  // Rules other than LibTorch's fused ones (Adam, AdamW, Sgd) are not captured: what they do on the host may
  // change from step to step.
  void step(Optimizer& optimizer, const std::function<void()>& work) override;

 private:
  Device device_;
  CapturedRegion measured_, updated_;
  CaptureKey key_;  // of the work at hand, in memory that stays
};

}  // namespace kindling
