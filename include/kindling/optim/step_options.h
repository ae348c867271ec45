#pragma once

#include <ATen/core/Tensor.h>

namespace kindling {

// The outcome of a check of the gradients, still on their device.
struct StepOptions {
  at::Tensor grad_scale{};  // float32 scalar that the gradients are divided by; undefined: 1
  at::Tensor found_inf{};   // float32 scalar, 1: do not change parameters, state and counters; undefined: 0
  bool found_inf_stays = false;  // once it is 1, it is 1 in all later steps: no more updates are made
};

}  // namespace kindling
