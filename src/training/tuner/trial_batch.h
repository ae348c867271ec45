#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kindling/base/export.h"
#include "kindling/data/data_module.h"
#include "kindling/nn/module.h"
#include "kindling/training/trainer_options.h"

namespace kindling {

// Places of LibTorch's errors in try_batch().
constexpr const char *kTrialOfTraining = "Trainer::fit", *kTrialOfValidation = "Trainer::validate";

// What one batch shows about a run.
struct TrialBatch {
  std::shared_ptr<Module> model{};            // with the parameters of its lazy layers
  std::vector<std::string> names{};           // of the values that the model logs in an epoch
  std::vector<std::string> repeated_names{};  // logged more than once in a step
  bool has_trained = false;                   // false: a ManualModule, or memory was exhausted
  bool has_validated = false;                 // false: the run does not validate, or as above
  bool lacked_memory = false;                 // so that no batch could be tried
  bool has_transformed = false;               // on_after_batch_transfer() of the data changes batches
};

using ModelFactory = std::function<std::shared_ptr<Module>()>;

// Runs a few training samples through the training step of a throw-away model, and a few validation samples
// through its validation step, on the CPU, without backward and update; fewer ones follow if the last batch
// of an epoch is smaller, unless several ranks or gradient shards share it. The samples include the ones with
// the largest labels. If that fails, repeats it with another model in the conditions of the run's steps: full
// batches, gradients, the run's device. Throws what that throws; LibTorch's errors are translated as by
// Trainer::fit. Restores the random state of the CPU and changes neither loaders nor data sets.
KINDLING_API TrialBatch try_batch(const TrainerOptions& trainer, const ModelFactory& make_model,
                                  DataModule& data, std::int64_t num_ranks = 1);

// Returns the index of the sample with the largest label; nothing for labels that are not integers in memory.
KINDLING_API std::optional<std::int64_t> sample_with_largest_label(const Dataset& dataset);

// Returns one sample as a batch that is ready for a step on the CPU.
KINDLING_API Batch prepared_sample(DataModule& data, const Dataset& dataset, std::int64_t index, Stage stage);

}  // namespace kindling
