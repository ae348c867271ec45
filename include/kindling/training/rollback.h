#pragma once

#include <cstdint>

namespace kindling {

// Consecutive training batches of an epoch.
struct BatchRange {
  std::int64_t epoch = 0;  // from 0
  std::int64_t batch = 0;  // the first one, from 0
  std::int64_t count = 1;
};

// A fit has gone back to a checkpoint because the loss of a step had a spike (SpikeOptions::action
// "rollback").
struct Rollback {
  std::int64_t spike_step = 0;   // the optimizer step with the spike, from 1
  std::int64_t global_step = 0;  // steps done in the checkpoint, from which the fit continues
  BatchRange passed{};           // the batches of the spike, which the fit passes over from now on
};

}  // namespace kindling
