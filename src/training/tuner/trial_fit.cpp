#include "training/trial_fit.h"

#include <utility>

#include "kindling/training/trainer.h"

namespace kindling {

TrainerOptions trial_options(TrainerOptions of_training, std::int64_t num_steps) {
  const TrainerOptions plain;
  TrainerOptions options = std::move(of_training);
  options.max_epochs.reset();
  options.max_steps = num_steps;
  options.max_time.clear();
  options.min_epochs = options.min_steps = 0;
  // The training itself says what cards it does not find.
  if (!options.require_gpus) options.num_gpus = trial_device(options).is_cpu() ? 0 : 1;
  options.fast_dev_run = false;
  options.limit_val_batches = options.num_sanity_val_steps = 0;
  options.val_check_interval = plain.val_check_interval;
  options.check_val_every_n_epoch = plain.check_val_every_n_epoch;
  options.log_every_n_steps = 0;
  options.on_nonfinite = "ignore";
  options.nonfinite_dir.clear();
  options.schedule = {};
  options.callbacks.clear();
  options.loggers.clear();
  return options;
}

Device trial_device(const TrainerOptions& options) {
  const auto cards = first_gpus(options.num_gpus);
  return cards.empty() ? cpu() : cards.front();
}

void StopElsewhere::on_train_batch_end(Trainer& trainer, Module&) {
  if (stop_.stop_requested()) trainer.request_stop();
}

void StopElsewhere::on_validation_start(Trainer& trainer, Module& model) {
  on_train_batch_end(trainer, model);
}

}  // namespace kindling
