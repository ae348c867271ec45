#include "training/tuner/trial_fit.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "config/option_checks.h"
#include "kindling/training/trainer.h"
#include "training/state/stop_consensus.h"

namespace kindling {

TrainerOptions trial_options(TrainerOptions of_training, std::int64_t num_steps) {
  TrainerOptions options = std::move(of_training);
  copy_options_if(options, TrainerOptions(), [](const OptionPolicy& policy) {
    return policy.in_trials == OptionPolicy::InTrials::reset;
  });
  options.max_steps = num_steps;
  // The run itself warns about missing GPUs. With several ranks, the number is that of their machine.
  if (!options.require_gpus && group_of(options) == nullptr)
    options.num_gpus = trial_device(options).is_cpu() ? 0 : 1;
  options.limit_val_batches = options.num_sanity_val_steps = 0;
  options.on_nonfinite = "ignore";
  options.on_spike.reset();
  options.nonfinite_dir.clear();
  options.schedule = {};
  options.callbacks.clear();
  options.loggers.clear();
  return options;
}

Device trial_device(const TrainerOptions& options) {
  const auto gpus = first_gpus(options.num_gpus);
  if (gpus.empty()) return cpu();
  const ProcessGroup* const group = group_of(options);
  return gpus[static_cast<std::size_t>(group != nullptr ? group->local_rank() : 0) % gpus.size()];
}

ProcessGroup* group_of(const TrainerOptions& options) {
  const bool are_several = options.process_group && options.process_group->size() > 1;
  return are_several ? options.process_group.get() : nullptr;
}

bool share_stop(ProcessGroup* group, const StopToken& stop) {
  StopConsensus consensus(stop, group);
  consensus.vote_now();
  if (consensus.stop_requested()) stop.request_stop(consensus.reason());
  return stop.stop_requested();
}

double largest_of_ranks(ProcessGroup* group, double number) {
  if (group == nullptr) return number;
  for (const std::string& bytes :
       group->all_gather({reinterpret_cast<const char*>(&number), sizeof number})) {
    double other = 0;
    std::memcpy(&other, bytes.data(), sizeof other);
    number = std::max(number, other);
  }
  return number;
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
