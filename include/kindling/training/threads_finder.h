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

// What a measurement of threads has found.
struct ThreadsFinderResult {
  // What was measured with one number of threads.
  struct Trial {
    std::int64_t num_threads = 0;
    double seconds_per_step = 0;
  };
  std::int64_t num_threads = 0;  // of operators, to train with
  std::vector<Trial> trials{};   // one thread, then all; empty: there was nothing to choose
};

// Measures some steps of a training on the CPU, a second in all or six of them, with one thread of LibTorch's
// operators and with as many as there are now. All of them are chosen when a step takes a quarter less with
// them; small steps are slower with threads, which wait for each other. Everything is left as it was, the
// number of threads, too; the rest is as with find_lr().
//
// Nothing is measured, and the number of now is the result, on a card, where there is one thread, and for a
// model that does not say has_static_graph(): one that counts its steps, say, would count these. A requested stop
// ends it likewise. Other numbers of threads move the last bits of a training.
KINDLING_API ThreadsFinderResult find_num_threads(const TrainerOptions& trainer,
                                                  const std::shared_ptr<Module>& model, DataModule& data,
                                                  const StopToken& stop = {});

}  // namespace kindling
