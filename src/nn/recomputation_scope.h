#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "kindling/device/device.h"
#include "kindling/nn/activation_checkpoint.h"
#include "nn/carried_states.h"

namespace kindling {

// Autocast of the CPU and of the accelerator, as it is set for this thread.
struct AutocastSetting {
  struct OfDevice {
    at::DeviceType device;
    bool is_enabled;
    at::ScalarType type;
  };
  std::vector<OfDevice> devices;
  bool caches = false;

  static AutocastSetting now();
  void set() const;
  bool is_on() const;
};

// What a part of a model finds when it is computed, beside its inputs and parameters.
class ForwardMoment {
 public:
  ForwardMoment(const torch::nn::Module& module, const std::vector<at::Tensor>& inputs);

  // The first computation. What it has not drawn from or written to is forgotten afterwards.
  std::vector<at::Tensor> compute(TensorFunction& forward, const std::vector<at::Tensor>& inputs);

 private:
  friend class RecomputationScope;

  struct Buffer {
    at::Tensor buffer, before;
    std::int64_t version;
  };

  std::vector<std::pair<Device, std::vector<at::Tensor>>> random_;  // by device
  std::vector<Buffer> buffers_;
  AutocastSetting autocast_;
  CarriedStates carried_;
};

// While it lives, all of that is as it was then; afterwards it is as it has been before.
class RecomputationScope {
 public:
  RecomputationScope(const torch::nn::Module& module, const ForwardMoment& moment);
  ~RecomputationScope();
  RecomputationScope(const RecomputationScope&) = delete;
  RecomputationScope& operator=(const RecomputationScope&) = delete;

  // With gradients, and under the autocast of then. Drawn numbers are given back.
  std::vector<at::Tensor> compute(const TensorFunction& forward, const std::vector<at::Tensor>& inputs) const;

 private:
  const ForwardMoment& moment_;
  std::vector<std::pair<at::Tensor, at::Tensor>> buffers_;  // and the memory that they had
  CarriedStates carried_;
};

}  // namespace kindling
