#pragma once

#include <cstdint>

namespace kindling {

// The parts of an epoch.
enum class Phase { training, validation };

// The position of a run.
struct Progress {
  std::int64_t epoch = 0;         // epochs finished, which is the number of the current one, from 0
  std::int64_t batch = 0;         // training batches done in the current epoch
  std::int64_t global_step = 0;   // optimizer steps done in the whole run
  Phase phase = Phase::training;  // of the current epoch

  friend bool operator==(const Progress&, const Progress&) = default;
};

}  // namespace kindling
