#include "training/tuner/trial_fit.h"

#include <utility>

#include "config/option_checks.h"
#include "kindling/training/trainer.h"

namespace kindling {

TrainerOptions trial_options(TrainerOptions of_training, std::int64_t num_steps) {
  TrainerOptions options = std::move(of_training);
  copy_options_if(options, TrainerOptions(), [](const OptionPolicy& policy) {
    return policy.in_trials == OptionPolicy::InTrials::reset;
  });
  options.max_steps = num_steps;
  // The run itself warns about missing GPUs.
  if (!options.require_gpus) options.num_gpus = trial_device(options).is_cpu() ? 0 : 1;
  options.limit_val_batches = options.num_sanity_val_steps = 0;
  options.on_nonfinite = "ignore";
  options.nonfinite_dir.clear();
  options.schedule = {};
  options.callbacks.clear();
  options.loggers.clear();
  return options;
}

Device trial_device(const TrainerOptions& options) {
  const auto gpus = first_gpus(options.num_gpus);
  return gpus.empty() ? cpu() : gpus.front();
}

TrialScope::TrialScope(Module& model, Device device)
    : use_(model, "a finder"),
      model_(model),
      board_(std::exchange(model.board(), ProgressBoard(model.board().options()))),
      state_(model, ScopedModelState::Extent::everything),
      trainer_(model, model.trainer()),
      random_state_(device) {}

TrialScope::~TrialScope() { model_.board() = std::move(board_); }

void StopElsewhere::on_train_batch_end(Trainer& trainer, Module&) {
  if (stop_.stop_requested()) trainer.request_stop();
}

void StopElsewhere::on_validation_start(Trainer& trainer, Module& model) {
  on_train_batch_end(trainer, model);
}

}  // namespace kindling
