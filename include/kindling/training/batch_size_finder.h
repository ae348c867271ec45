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

// Names and defaults are those of Lightning's BatchSizeFinder. There the margin reduces the size that
// "binsearch" finds; here it is memory that every trial must leave free.
struct BatchSizeFinderOptions {
  std::string mode = "power";  // doubles; "binsearch" then bisects between the sizes that fit and do not fit
  std::int64_t steps_per_trial = 3;  // optimizer steps, and validation batches, per size
  std::int64_t init_val = 2;         // the first size
  std::int64_t max_trials = 25;
  double margin = 0.05;  // fraction of the free memory that a trial must leave free

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

// The result of a search.
struct BatchSizeFinderResult {
  // One size that was tried.
  struct Trial {
    std::int64_t batch_size = 0;
    bool fits = false;
  };
  std::int64_t batch_size = 0;  // the largest size tried that fits
  std::vector<Trial> trials{};  // in the order tried
};

// Searches for the largest batch size, up to all training samples, with which training does not run out of
// memory. Each trial runs a few steps and a validation on the data's own data sets, as a Trainer with these
// options would. Restores the state of model and data; for the rest see find_lr().
//
// The margin is for memory that a fit needs in addition to its steps, and for the kernels of every size
// tried, which stay loaded. It is a fraction of the memory that the GPU, or the limit of the process, has
// free when the search begins.
//
// The search survives running out of memory on GPUs, and on the CPU if the process has a limit (ulimit -v).
// Without a limit the system may kill a process that takes more memory than there is, so bound the search by
// max_trials. Callbacks are not called: choose a larger margin for the memory that they need, such as weight
// averages.
//
// With several ranks, all of them call it together and get the same result: the largest size that fits on
// every rank. Each tries by itself, up to its part of the samples; of the ranks that share a machine with
// GPUs, the first one tries. The margin also has to cover the memory of the exchange of gradients.
//
// A requested stop ends the search with the result so far; batch_size is 0 if no size was found. Throws
// ConfigError for options out of range, DataError for data that cannot be batched in another size
// (SequenceWindows), and Error if not even one sample fits or max_trials is reached before a size fits.
KINDLING_API BatchSizeFinderResult find_batch_size(const TrainerOptions& trainer,
                                                   const std::shared_ptr<Module>& model, DataModule& data,
                                                   const BatchSizeFinderOptions& options = {},
                                                   const StopToken& stop = {});

}  // namespace kindling
