#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "kindling/device/device.h"

namespace kindling {

// The states of LibTorch's default generators, of the CPU and, when it is a card, of `device`: uint8 tensors
// in host memory. Restoring gives the same numbers again.
std::vector<at::Tensor> random_state(Device device);
void set_random_state(Device device, const std::vector<at::Tensor>& state);

// Has these generators give other numbers than those of another process in the same state: with the seeds
// that `rank` makes of it. Nothing for rank 0.
void fork_rng(Device device, std::int64_t rank);

// Gives back the random state that it found.
class RandomStateGuard {
 public:
  explicit RandomStateGuard(Device device) : device_(device), state_(random_state(device)) {}
  ~RandomStateGuard() { set_random_state(device_, state_); }
  RandomStateGuard(const RandomStateGuard&) = delete;
  RandomStateGuard& operator=(const RandomStateGuard&) = delete;

 private:
  Device device_;
  std::vector<at::Tensor> state_;
};

}  // namespace kindling
