#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "kindling/base/export.h"
#include "kindling/data/data_module.h"
#include "kindling/nn/module.h"
#include "kindling/training/stop_token.h"
#include "kindling/training/trainer_options.h"

namespace kindling {

// The result of a measurement.
struct ThreadsFinderResult {
  // The measurement with one number of threads.
  struct Trial {
    std::int64_t num_threads = 0;
    double seconds_per_step = 0;
  };
  std::int64_t num_threads = 0;  // the recommended number of operator threads
  std::vector<Trial> trials{};   // one thread, then all; empty: nothing was measured
};

// Measures training steps on the CPU with one operator thread of LibTorch and with the current number of
// threads, for about one second in total but at least three steps each. Recommends all threads if a step
// takes at least a quarter less time with them: small steps are slower with threads, which wait for each
// other. Restores everything, including the number of threads; for the rest see find_lr().
//
// With several ranks, all of them call it together and decide by the slowest of them.
//
// Returns the current number without measuring on a GPU, with a single thread, after a requested stop, and
// for a model whose has_static_graph() is false: a model that counts its steps would count these too.
// Changing the number of threads changes the last bits of a run's results.
KINDLING_API ThreadsFinderResult find_num_threads(const TrainerOptions& trainer,
                                                  const std::shared_ptr<Module>& model, DataModule& data,
                                                  const StopToken& stop = {});

}  // namespace kindling
