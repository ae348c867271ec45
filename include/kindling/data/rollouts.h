#pragma once

#include <cstdint>
#include <memory>

namespace kindling {

class DataLoader;

// Trajectories by which a model that predicts the next state of a system is validated: it continues each of
// them from a start by itself, so that every step has its former output as the input. See RolloutValidation.
struct Rollouts {
  // Batches of equal size, in order: for each group of starts, the first pairs of all of them, then the
  // second, and so on, num_steps batches. Each has the inputs, the first of which is replaced by the outputs
  // after the first step, and last the targets. nullptr: the data has none.
  std::shared_ptr<DataLoader> loader{};
  std::int64_t num_steps = 0;
};

}  // namespace kindling
