#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kindling/base/export.h"
#include "kindling/data/data_module.h"
#include "kindling/loggers/progress.h"
#include "kindling/nn/module.h"
#include "kindling/tensors/batch.h"
#include "kindling/tensors/state_dict.h"
#include "kindling/training/trainer_options.h"

namespace kindling {

// Which step of a run happens again.
struct ReplayOptions {
  // The directory of the run: its checkpoints, or its directory `checkpoints`, and its metrics.jsonl, which
  // may be missing. It is only read.
  std::filesystem::path run{};
  std::int64_t step = 0;                // optimizer step, from 1
  std::optional<std::int64_t> until{};  // the last step; absent: `step`
  bool keep_state = false;              // see ReplayResult::state
  // Called before the first step with the checkpoint that the replay starts from; an empty path: the seed.
  std::function<void(const std::filesystem::path& checkpoint, std::int64_t global_step)> on_start{};
};

// A batch of a replayed step. Its tensors are copies on the CPU.
struct ReplayedBatch {
  std::int64_t rank = 0;  // whose batch it is; those of other ranks than this one are flat lists
  Batch batch{};          // as training_step() gets it
  at::Tensor indices{};   // int64 [samples]: positions in the training set
  // What forward_inputs() returns, in training mode and with the random numbers of the step. Undefined, with
  // the reason: it cannot be computed without changing the run.
  at::Tensor outputs{};
  std::string no_outputs{};
  // float64 [samples]: loss() of each sample alone, for these outputs; -infinity for one that does not count.
  // Undefined, with the reason: the loss of the step is not the mean of these.
  at::Tensor losses{};
  // float64 [samples]: the weight of each loss in the loss of the step, which is the mean with these weights
  // over all batches of the step: that of loss(), such as that of a class, else 1; 0 for one that does not
  // count.
  at::Tensor weights{};
  double mean_loss = 0;  // of the losses, with these weights
  std::string no_losses{};
};

// An optimizer step that has happened again.
struct ReplayedStep {
  std::int64_t global_step = 0, epoch = 0;  // from 1
  std::int64_t batch = 0;                   // the first one of the step within its epoch, from 0
  double lr = 0;
  double loss = 0;       // as in records, of rank 0; NaN for a step without a train_loss
  double grad_norm = 0;  // 2-norm of all gradients, before they are clipped

  // Of ReplayOptions::step alone; empty for later steps.
  // Several with accumulate_grad_batches. On rank 0 those of all ranks, in the order of the ranks.
  std::vector<ReplayedBatch> batches{};
  std::vector<std::pair<std::string, double>> gradient_norms{};  // of each parameter, before clipping
  StateDict gradients{};                                         // before clipping
  StateDict before{}, after{};                                   // the model's parameters and buffers
};

// What replay() has done.
struct ReplayResult {
  std::filesystem::path checkpoint{};  // where it started; empty: at the seed
  std::int64_t start_step = 0;         // steps done there
  std::vector<ReplayedStep> steps{};   // ReplayOptions::step, then those up to `until`
  // The last step up to which the replay equals what the run has recorded: the values of its records, its log
  // digests, and weights, optimizer and hidden states in its checkpoints. start_step: nothing was compared.
  std::int64_t confirmed_step = 0;
  std::int64_t num_records = 0, num_digests = 0, num_checkpoints = 0;  // that were compared
  Progress progress{};                                                 // after the last step
  // The state of the run there, as Trainer::state_dict() returns it, on the CPU, with a run id
  // of its own: saved as a checkpoint, a new run continues from it. Empty unless `keep_state` is set.
  StateDict state{};
  std::optional<std::int64_t> next_check{};  // the next step after the last one for which there is a record
};

// Repeats steps of a run from its nearest checkpoint before them, or from the model's current weights if
// there is none, and compares them with what the run has recorded. Takes the options, a new model and the
// data that the run was trained with; savers and loggers are ignored, and nothing is written. The model has
// the weights after the last step.
//
// Throws Error that names the first place where the replay differs from the run, ConfigError for a step that
// the run does not have, for another number of ranks than that of the run, and for a run whose batches came
// from a custom training loop (prepare_batch()), and what Trainer::fit() throws.
//
// A run of several ranks needs a process_group of as many, which all call replay(): rank 0 compares the
// records, and gets the batches of all.
//
//   manual_seed(1);  // as the program did, for steps before the first checkpoint
//   const ReplayResult again = replay(options, std::make_shared<MyModel>(), data, {.run = "run", .step =
//   120});
KINDLING_API ReplayResult replay(const TrainerOptions& trainer, const std::shared_ptr<Module>& model,
                                 DataModule& data, const ReplayOptions& options);

// Saves a step with its details as safetensors: batch.0, batch.1 … as in nonfinite-step-N.safetensors, then
// indices, outputs, losses, gradients.NAME, before.NAME and after.NAME; batches after the first have the
// prefix "1.", "2." … before batch, indices, outputs and losses. Throws CheckpointError.
KINDLING_API void save_step(const ReplayedStep& step, const std::filesystem::path& file);

}  // namespace kindling
