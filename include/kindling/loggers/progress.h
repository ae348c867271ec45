#pragma once

#include <cstdint>

namespace kindling {

// The parts of an epoch.
enum class Phase { training, validation };

// Where a training is.
struct Progress {
  std::int64_t epoch = 0;         // epochs closed, which is the number of the running one, from 0
  std::int64_t batch = 0;         // training batches of the running epoch done
  std::int64_t global_step = 0;   // optimizer steps done in the whole run
  Phase phase = Phase::training;  // of the running epoch

  friend bool operator==(const Progress&, const Progress&) = default;
};

}  // namespace kindling
