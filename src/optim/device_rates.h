#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <vector>

#include "kindling/optim/optimizer.h"

namespace kindling {

// The learning rates of one optimizer as scalars on its device, where a captured update reads them, so that
// they may change from step to step. They are float32, which the devices' fused operators read.
class DeviceRates {
 public:
  // For its lifetime, replaces numeric learning rates of the optimizer by these scalars, if its rule can be
  // captured and its parameters are on a device. Skips groups with float64 parameters, for which float32 is
  // not exact enough, or with sparse gradients.
  class Scope {
   public:
    Scope(DeviceRates& rates, Optimizer& optimizer);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Optimizer& optimizer_;
    std::vector<std::size_t> given_;  // groups
  };

 private:
  struct Rate {
    at::Tensor tensor;
    double number;  // the value that it holds
  };
  std::vector<Rate> rates_;  // of the groups
};

}  // namespace kindling
