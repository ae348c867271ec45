#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <typeinfo>
#include <utility>
#include <vector>

#include "device/deterministic_operators.h"
#include "device/host_caller.h"
#include "kindling/base/export.h"
#include "kindling/metrics/epoch_log.h"
#include "kindling/nn/module.h"
#include "kindling/training/callback.h"
#include "kindling/training/trainer_options.h"
#include "metrics/epoch_clock.h"
#include "nn/model_calls.h"
#include "nn/precision.h"
#include "training/state/stop_consensus.h"
#include "training/state/train_state.h"

namespace kindling {

class StepObserver;

// Whether forward and backward of a run are captured and replayed (TrainerOptions::step_graph).
struct CaptureMode {
  enum class Kind { captured, eager };
  Kind kind = Kind::eager;
  std::string reason{};  // why they are not; empty when captured

  bool is_captured() const noexcept { return kind == Kind::captured; }
  static CaptureMode eager(std::string why) { return {Kind::eager, std::move(why)}; }
  static CaptureMode captured() { return {Kind::captured, {}}; }
};

// The callbacks of a trainer, called in their order, except that savers are called after the others, so
// that a checkpoint contains what the others have done. At the end of a fit savers come first, before the
// others change anything.
class Callbacks {
 public:
  Callbacks(Trainer& trainer, const std::vector<std::shared_ptr<Callback>>& list) : trainer_(trainer) {
    for (const auto& callback : list) {
      (callback->saver() != nullptr ? savers_ : others_).push_back(callback);
      if (WeightAveraging* averaging = callback->averaging()) averaging_.push_back(averaging);
    }
  }

  // callbacks.call(&Callback::on_train_batch_end, model)
  template <class... Parameters, class... Arguments>
  void call(void (Callback::*moment)(Trainer&, Module&, Parameters...), Module& model,
            Arguments&... arguments) const {
    is_calling_ = true;
    const auto call_all = [&](const auto& list) {
      for (const auto& pointer : list) {
        Callback& callback = *pointer;
        const HostCaller caller(HostCaller::kCallback, &typeid(callback));
        (callback.*moment)(trainer_, model, arguments...);
      }
    };
    call_all(others_);
    call_all(savers_);
    is_calling_ = false;
  }

  void average_after_step(Module& model) const {
    for (WeightAveraging* averaging : averaging_) averaging->after_step(trainer_, model);
  }
  void average_after_epoch(Module& model) const {
    for (WeightAveraging* averaging : averaging_) averaging->after_epoch(trainer_, model);
  }
  // Returns the averages that validations see; nullptr: the model's own weights.
  WeightAveraging* evaluated_average() const {
    const auto found = std::ranges::find_if(averaging_, [](const auto* one) { return one->evaluates(); });
    return found == averaging_.end() ? nullptr : *found;
  }

  // Data-parallel training: whether this rank requests a save, and the news that some rank has. The savers
  // make it at the end of the batch.
  bool save_requested() const {
    return std::ranges::any_of(savers_, [](const auto& one) { return one->saver()->save_requested(); });
  }
  void notify_save_request() const {
    for (const auto& one : savers_) one->saver()->on_save_request();
  }

  // True while an event is being delivered, and after a callback has thrown in it: some callbacks have seen
  // the event, others have not.
  bool is_calling() const noexcept { return is_calling_; }

  const std::vector<std::shared_ptr<Callback>>& savers() const noexcept { return savers_; }
  const std::vector<std::shared_ptr<Callback>>& others() const noexcept { return others_; }
  Trainer& trainer() const noexcept { return trainer_; }

 private:
  Trainer& trainer_;
  mutable bool is_calling_ = false;
  std::vector<std::shared_ptr<Callback>> savers_, others_;
  std::vector<WeightAveraging*> averaging_;  // of callbacks in the lists above
};

// What all parts of one trainer share. Models refer to it weakly, through their TrainerView.
struct TrainingContext {
  // `options` must have been resolved (see make_context); `gpus`: those to train on, empty: the CPU.
  TrainingContext(Trainer& owner, TrainerOptions options, std::vector<Device> gpus);
  TrainingContext(const TrainingContext&) = delete;
  TrainingContext& operator=(const TrainingContext&) = delete;

  const TrainerOptions options;
  Placement placement;
  TrainState state;
  const Callbacks callbacks;
  StopConsensus stop;
  ModelCalls calls{};
  CaptureMode capture{};             // of the model that is trained
  StepObserver* observer = nullptr;  // of a replay
  EpochClock clock;                  // runs while somebody measures where the time goes
  DeterministicOperators deterministic_operators;

  Device device() const { return placement.device(); }
  ProcessGroup* group() const noexcept { return options.process_group.get(); }  // nullptr: a single process
};

// Resolves the options that a user has set and makes the context of a trainer. Logs a warning when there are
// fewer GPUs than requested; throws DeviceError if there must be as many, ConfigError for options out of
// range, for a num_processes that the group does not have, and for shards that cannot be divided among ranks.
std::shared_ptr<TrainingContext> make_context(Trainer& owner, TrainerOptions options);

// True if a fit goes back to its latest checkpoint after a spike.
inline bool rolls_back(const TrainerOptions& options) {
  return options.on_spike && options.on_spike->action == "rollback";
}

// Returns the options as a run uses them: with those that fast_dev_run sets.
KINDLING_API TrainerOptions with_fast_dev_run(TrainerOptions options);

// Throws ConfigError for options that do not fit gradient_shards on so many ranks.
KINDLING_API void require_shards_fit(const TrainerOptions& options, std::int64_t num_ranks);

// Gives a model its trainer and moves it to the device; without a GPU it stays where it is.
void attach(Module& model, const std::shared_ptr<TrainingContext>& context);

}  // namespace kindling
