#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "distributed/shard_streams.h"
#include "kindling/base/error.h"
#include "kindling/base/export.h"
#include "kindling/loggers/progress.h"
#include "kindling/metrics/epoch_log.h"
#include "kindling/nn/manual_module.h"
#include "kindling/optim/optimizer.h"
#include "kindling/optim/plateau.h"
#include "kindling/training/trainer_options.h"
#include "metrics/log_digest.h"
#include "training/state/grad_scaler.h"
#include "training/state/passed_batches.h"
#include "training/state/spike_detector.h"
#include "training/state/stop_consensus.h"

namespace kindling {

// Thrown when there is no consistent state to save: a step is running or has thrown.
class InsideStep : public Error {
  using Error::Error;
};

// The state of a run between two steps: everything that changes during training.
class TrainState {
 public:
  // `options` outlive it.
  TrainState(Device device, const TrainerOptions& options)
      : log(device), time(options.max_time), options_(options) {}

  std::shared_ptr<Module> model{};
  std::unique_ptr<Optimizer> optimizer{};    // from the first step on
  NamedOptimizers optimizers{};              // of a ManualModule, instead; from the first update on
  std::optional<PlateauCounter> plateaus{};  // if the schedule needs it
  Progress progress{};
  std::int64_t num_train_batches = 0;  // of an epoch; 0: unknown
  EpochLog log;                        // of the training part of the running epoch
  LogDigest digest;                    // of all rows of the log, and of earlier epochs
  std::optional<GradScaler> scaler;    // with a precision that needs it
  ShardStreams streams;                // with gradient_shards
  bool has_custom_batches = false;     // some came from outside, through prepare_batch()
  PassedBatches passed{};              // after rollbacks
  TimeLimit time;
  bool is_early_stop_pending = false;  // requested before min_epochs and min_steps were reached
  std::string run_id{};                // of the run, through all its stops
  // The random state before the running validation. A validation that is cut short is repeated from its
  // start.
  std::vector<at::Tensor> random_before_validation{};

  // Begins a run with this model. Throws ConfigError for a schedule that watches a value without a mode.
  void start(std::shared_ptr<Module> new_model);
  // Makes the optimizer if there is none: by the options, else by the model, else Adam. Lazy layers must have
  // their parameters by then.
  Optimizer& require_optimizer();
  // Returns one of a ManualModule's. Throws ConfigError for an unknown name.
  Optimizer& require_optimizer(std::string_view name);
  // Changes whenever optimizers are replaced: what is kept for an optimizer belongs to one generation.
  std::int64_t optimizer_generation() const noexcept { return optimizer_generation_; }
  // Returns the losses of an optimizer's steps, for on_spike. The only optimizer of a model has no name.
  SpikeDetector& spike_detector(std::string_view name);
  double lr() const;  // of the optimizer, of several the first; 0 before there is one
  // True until the first step: create_optimizer() is to be called.
  bool needs_optimizer() const { return !optimizer && !model->updates_manually(); }

  // Writes everything that a resumed run needs: weights, which of them are frozen, optimizers, what the
  // schedule has counted, progress, the rows of the log, random state, callbacks. saved_keys.h lists what a
  // checkpoint has in addition. The tensors are the run's own, no copies; saving copies the log to the host.
  // Throws InsideStep while a transaction is open.
  void save(StateDict& state);
  void require_between_steps() const;  // throws it, too
  // Announces that load() will follow: takes the run id. Until then there is nothing to save.
  void adopt_run_id(const StateDict& state);
  // Loads a saved run after start() with the same kind of model on the same device; lazy layers get their
  // shapes. The random state comes last, so what must be drawn before the next step must have been drawn.
  // Throws CheckpointError that says what does not fit.
  void load(const StateDict& state);

 private:
  friend class StateTransaction;
  friend void require_loadable(const StateDict&, std::shared_ptr<Module>, const TrainerOptions&, std::size_t);
  void save_optimizers(StateDict& state);
  void load_spike_detectors(const StateDict& state);
  void save_optimizer(const Optimizer& one, const std::string& prefix, StateDict& state);
  void make_optimizers();  // the named ones
  void load_optimizers(const StateDict& state);
  ProcessGroup* optimizer_shards() const;  // nullptr: optimizer state is not sharded

  const TrainerOptions& options_;
  std::int64_t optimizer_generation_ = 0;
  std::map<std::string, SpikeDetector, std::less<>> spike_detectors_;  // by optimizer
  bool is_open_ = false;
  bool has_warned_of_state_ = false;  // of an optimizer that may keep state outside the checkpoint
};

// Returns a new random run id. Does not use LibTorch's generators, from which training draws.
std::string new_run_id();

// Throws CheckpointError, or ConfigError for the optimizer, if the state of a saved run does not fit the
// model or the options: precision, optimizer, schedule, gradient shards, and the types of callbacks. So many
// other callbacks come first in the run, which are not compared. Loads the weights into the model, on the
// CPU.
KINDLING_API void require_loadable(const StateDict& saved, std::shared_ptr<Module> model,
                                   const TrainerOptions& options, std::size_t num_other_callbacks = 0);

// While it exists, the parts of the state are inconsistent and cannot be saved. Without commit(), after an
// exception, this holds until the next load() or start().
class StateTransaction {
 public:
  explicit StateTransaction(TrainState& state) : state_(state) { state_.is_open_ = true; }
  void commit() { state_.is_open_ = false; }
  StateTransaction(const StateTransaction&) = delete;
  StateTransaction& operator=(const StateTransaction&) = delete;

 private:
  TrainState& state_;
};

}  // namespace kindling
