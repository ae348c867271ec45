#pragma once

#include <ATen/core/Tensor.h>

namespace kindling {

// What a guard has found out about the gradients, still on their device.
struct StepOptions {
  at::Tensor grad_scale{};  // float32 scalar that the gradients are divided by; undefined: 1
  at::Tensor
      found_inf{};  // float32 scalar, 1: leave parameters, state and counters as they are; undefined: 0
  bool found_inf_stays = false;  // once it is 1 it is so in every later step: none is made any more
};

}  // namespace kindling
