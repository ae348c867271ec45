#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <vector>

#include "kindling/optim/optimizer.h"

namespace kindling {

// The learning rates of one optimizer as scalars on its device, where a captured update reads them: they may
// change from step to step. They are float32, which is what the fused operators of devices read.
class DeviceRates {
 public:
  // As long as it lives, the optimizer has those of its rates so that are numbers, if its rule is recorded at
  // all and its parameters are on a device. Not where one is float64, for which float32 is not exact enough,
  // or has a sparse gradient.
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
    double number;  // that it holds
  };
  std::vector<Rate> rates_;  // of the groups
};

}  // namespace kindling
