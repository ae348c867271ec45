#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kindling/base/error.h"
#include "kindling/loggers/progress.h"
#include "kindling/metrics/epoch_log.h"
#include "kindling/nn/manual_module.h"
#include "kindling/optim/optimizer.h"
#include "kindling/optim/plateau.h"
#include "kindling/training/trainer_options.h"
#include "training/grad_scaler.h"
#include "training/shard_streams.h"
#include "training/time_limit.h"

namespace kindling {

// There is no state to save: something is at work, or has thrown there.
class InsideStep : public Error {
  using Error::Error;
};

// What a training is at a moment, between two steps.
class TrainState {
 public:
  // `options` outlive it.
  TrainState(Device device, const TrainerOptions& options)
      : log(device), time(options.max_time), options_(options) {}

  // What the names begin with of saved things that each of several processes has of its own.
  static constexpr std::string_view kOwnPrefixes[] = {"carried.", "log.", "random.", ShardStreams::kPrefix};

  std::shared_ptr<Module> model{};
  std::unique_ptr<Optimizer> optimizer{};    // made when it is first needed
  NamedOptimizers optimizers{};              // of a ManualModule, instead
  std::optional<PlateauCounter> plateaus{};  // where the schedule asks for it
  Progress progress{};
  std::int64_t accumulated_batches = 0;  // whose gradients wait for the rest of their window
  EpochLog log;                          // of the running epoch's training
  std::optional<GradScaler> scaler;      // with a precision that needs it
  ShardStreams streams;                  // with gradient_shards
  TimeLimit time;
  bool early_stop_waits = false;  // it was requested, and the training has not come to its least length yet
  std::string run_id{};           // of the training, through all its stops
  // While a step, the end of an epoch or load() is at work, and after one that has thrown: the parts of the
  // state do not belong together.
  bool is_torn = false;
  // A validation that is cut short is done again from its start, with the random state that it found there.
  std::vector<at::Tensor> random_before_validation{};

  // Begins a training of this model. Throws ConfigError for a schedule that watches a value without a mode.
  void start(std::shared_ptr<Module> new_model);
  // Makes the optimizer if there is none: by the options, else by the model, else Adam. Lazy layers must have
  // their parameters by then.
  Optimizer& require_optimizer();
  // One of a ManualModule's. Throws ConfigError for a name that it does not have.
  Optimizer& require_optimizer(std::string_view name);
  double lr() const;  // of the optimizer, of several the first; 0 before there is one

  // Everything that a continued run needs: weights, which of them are frozen, optimizer, what the schedule
  // has counted, progress, the rows of the log, random state, callbacks. The one list of saved things. The
  // tensors are the training's own, no copies; saving brings the log to the host. Throws Error while it is
  // torn.
  void save(StateDict& state);
  // It is going to be the saved training: its run id is known, and until load() there is nothing to save.
  void announce(const StateDict& state);
  // Into a training that start() has begun with the same kind of model, on the same device; lazy layers get
  // their shapes. The random state comes last, so what is to be drawn before the next step must have been
  // drawn. Throws CheckpointError that says what does not fit.
  void load(const StateDict& state);

 private:
  const TrainerOptions& options_;
};

}  // namespace kindling
