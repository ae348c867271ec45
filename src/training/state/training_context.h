#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "device/deterministic_operators.h"
#include "kindling/base/export.h"
#include "kindling/metrics/epoch_log.h"
#include "kindling/nn/module.h"
#include "kindling/training/trainer_options.h"
#include "metrics/epoch_clock.h"
#include "nn/precision.h"
#include "training/state/callbacks.h"
#include "training/state/stop_consensus.h"
#include "training/state/train_state.h"

namespace kindling {

class ManualUpdates;

// Whether forward and backward of a run are captured and replayed (TrainerOptions::step_graph).
struct CaptureMode {
  enum class Kind { captured, eager };
  Kind kind = Kind::eager;
  std::string reason{};  // why they are not; empty when captured

  bool is_captured() const noexcept { return kind == Kind::captured; }
  static CaptureMode eager(std::string why) { return {Kind::eager, std::move(why)}; }
  static CaptureMode captured() { return {Kind::captured, {}}; }
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
  std::int64_t num_train_batches = 0;  // of an epoch; 0: unknown
  EpochLog* log = nullptr;             // of the running loop; set by LogScope
  ManualUpdates* updates = nullptr;    // of the running training step; set by UpdatesScope
  CaptureMode capture{};               // of the model that is trained
  EpochClock clock;                    // runs while somebody measures where the time goes
  DeterministicOperators deterministic_operators;

  Device device() const { return placement.device(); }
  ProcessGroup* group() const noexcept { return options.process_group.get(); }  // nullptr: a single process
  // Batches whose gradients make one optimizer step here: with gradient_shards each shard counts as one.
  std::int64_t batches_per_step() const;
};

// Resolves the options that a user has set and makes the context of a trainer. Logs a warning when there are
// fewer GPUs than requested; throws DeviceError if there must be as many, ConfigError for options out of
// range, for a num_processes that the group does not have, and for shards that cannot be divided among ranks.
std::shared_ptr<TrainingContext> make_context(Trainer& owner, TrainerOptions options);

// Returns the options as a run uses them: with those that fast_dev_run sets.
KINDLING_API TrainerOptions with_fast_dev_run(TrainerOptions options);

// Throws ConfigError for options that do not fit gradient_shards on so many ranks.
KINDLING_API void require_shards_fit(const TrainerOptions& options, std::int64_t num_ranks);

// While it lives, what the model logs goes to this log; nullptr: nowhere.
class LogScope {
 public:
  LogScope(TrainingContext& context, EpochLog* log)
      : context_(context), former_(std::exchange(context.log, log)) {}
  ~LogScope() { context_.log = former_; }
  LogScope(const LogScope&) = delete;
  LogScope& operator=(const LogScope&) = delete;

 private:
  TrainingContext& context_;
  EpochLog* former_;
};

// While it lives, what the model logs is discarded.
class MutedLog {
 public:
  explicit MutedLog(TrainingContext& context)
      : scratch_(context.device(), /*capacity=*/1), scope_(context, &scratch_) {}

  const EpochLog& log() const noexcept { return scratch_; }

 private:
  EpochLog scratch_;
  LogScope scope_;
};

// While it lives, ManualModule::update() calls these updates.
class UpdatesScope {
 public:
  UpdatesScope(TrainingContext& context, ManualUpdates& updates)
      : context_(context), former_(std::exchange(context.updates, &updates)) {}
  ~UpdatesScope() { context_.updates = former_; }
  UpdatesScope(const UpdatesScope&) = delete;
  UpdatesScope& operator=(const UpdatesScope&) = delete;

 private:
  TrainingContext& context_;
  ManualUpdates* former_;
};

// Gives a model its trainer and moves it to the device; without a GPU it stays where it is.
void attach(Module& model, const std::shared_ptr<TrainingContext>& context);

}  // namespace kindling
