#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "base/logging.h"
#include "kindling/device/device.h"

namespace kindling {

// Returns the states of LibTorch's default generators of the CPU and, if `device` is a GPU, of `device`:
// uint8 tensors in host memory. Restoring them repeats the same random numbers.
std::vector<at::Tensor> random_state(Device device);
void set_random_state(Device device, const std::vector<at::Tensor>& state);

// Reseeds these generators so that ranks in the same state draw different numbers; the seeds depend on
// `rank`. Does nothing for rank 0.
void fork_rng(Device device, std::int64_t rank);

// Restores the random state in its destructor.
class RandomStateGuard {
 public:
  explicit RandomStateGuard(Device device) : device_(device), state_(random_state(device)) {}
  ~RandomStateGuard() {
    log_errors("the random state could not be restored", [&] { set_random_state(device_, state_); });
  }
  RandomStateGuard(const RandomStateGuard&) = delete;
  RandomStateGuard& operator=(const RandomStateGuard&) = delete;

 private:
  Device device_;
  std::vector<at::Tensor> state_;
};

}  // namespace kindling
