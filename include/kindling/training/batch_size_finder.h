#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kindling/base/export.h"
#include "kindling/config/options.h"
#include "kindling/data/data_module.h"
#include "kindling/nn/module.h"
#include "kindling/training/stop_token.h"
#include "kindling/training/trainer_options.h"

namespace kindling {

// Names, defaults and meaning are those of Lightning's BatchSizeFinder. Its margin makes the size smaller
// that "binsearch" has found.
struct BatchSizeFinderOptions {
  std::string mode = "power";        // doubles; "binsearch" then looks between what fits and what does not
  std::int64_t steps_per_trial = 3;  // optimizer steps, and validation batches, with each size
  std::int64_t init_val = 2;         // the first size
  std::int64_t max_trials = 25;
  double margin = 0.05;  // share of the free memory that the trials have to leave

  static constexpr auto fields = kindling::fields(
      kindling::field(
          "mode", &BatchSizeFinderOptions::mode,
          {.doc = "power: double the size; binsearch: then bisect between the sizes that fit and do not fit",
           .choices = "power|binsearch"}),
      kindling::field("steps_per_trial", &BatchSizeFinderOptions::steps_per_trial,
                      {.doc = "optimizer steps and validation batches per trial", .min = 1}),
      kindling::field("init_val", &BatchSizeFinderOptions::init_val, {.doc = "first size to try", .min = 1}),
      kindling::field("max_trials", &BatchSizeFinderOptions::max_trials,
                      {.doc = "largest number of sizes to try", .min = 1}),
      kindling::field("margin", &BatchSizeFinderOptions::margin,
                      {.doc = "fraction of the free memory that a trial must leave free",
                       .min = 0,
                       .max = 1,
                       .max_excluded = true}));
};

// What a search has found.
struct BatchSizeFinderResult {
  // One size that was tried.
  struct Trial {
    std::int64_t batch_size = 0;
    bool fits = false;
  };
  std::int64_t batch_size = 0;  // the largest one that was tried and fits
  std::vector<Trial> trials{};  // in their order
};

// Looks for the largest batch, up to all training samples, whose training does not run out of memory: a few
// steps and a validation with each size, as a Trainer with these options would run them, on the data's own
// data sets. Everything is left as it was; the rest is as with find_lr().
//
// A fit takes some memory beside its steps, and kernels of every size tried stay: that is what the margin is
// for. It is of the memory that the card, or the limit of the process, has free when the search begins.
//
// Memory that cannot be had is survived on cards, and on the CPU where the process has a limit (ulimit -v).
// Without one the system may end a process that takes more than there is, so bound the search by max_trials
// there. Callbacks take no part: make the margin larger for what they keep, such as averages of weights.
//
// A requested stop ends the search with what has been found; batch_size is 0 if that is nothing. Throws
// ConfigError for options out of range, DataError for data that cannot be made into batches of another size
// (SequenceWindows), and Error when not even one sample fits or max_trials end before a size does.
KINDLING_API BatchSizeFinderResult find_batch_size(const TrainerOptions& trainer,
                                                   const std::shared_ptr<Module>& model, DataModule& data,
                                                   const BatchSizeFinderOptions& options = {},
                                                   const StopToken& stop = {});

}  // namespace kindling
