#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <span>

#include "training/capture/captured_region.h"
#include "training/step/optimizer_update.h"

namespace kindling {

// The trainer's part of a step on a device whose steps are captured: the measurements of the gradients, and
// the update. Each is a single graph launch if its tensors have the same addresses as when it was captured.
class CapturedUpdate : public UpdateCapture {
 public:
  // The log outlives it.
  CapturedUpdate(Device device, EpochLog& log)
      : device_(device), measured_(device, log), updated_(device, log) {}

  void measure(Optimizer& optimizer, std::span<const at::Tensor> losses,
               const std::function<void()>& work) override;
  // Captures LibTorch's fused rules only (Adam, AdamW, Sgd): the host code of others may change from step to
  // step.
  void step(Optimizer& optimizer, const std::function<void()>& work) override;

 private:
  Device device_;
  CapturedRegion measured_, updated_;
  CaptureKey key_;  // of the current work; a member so that its memory is reused
};

}  // namespace kindling
