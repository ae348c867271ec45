#pragma once

#include <ATen/core/Tensor.h>

#include <optional>
#include <span>
#include <string>

#include "distributed/lone_group.h"
#include "training/callbacks.h"
#include "training/device_rates.h"
#include "training/gradient_norms.h"
#include "training/gradient_reducer.h"
#include "training/nonfinite_guard.h"
#include "training/optimizer_shards.h"
#include "training/recorded_update.h"
#include "training/train_state.h"
#include "training/trainer_info.h"

namespace kindling {

// What steps of every kind come to: the update of an optimizer with the gradients that are there. They are
// added up over the processes, unscaled, measured, looked at and clipped; then schedule, callbacks, update.
class OptimizerUpdate {
 public:
  // All references outlive it.
  OptimizerUpdate(TrainState& state, const TrainerInfo& info, const TrainerOptions& options,
                  const Callbacks& callbacks);

  // The losses that the gradients come from, and what these are among those of other processes.
  struct Origin {
    std::span<const at::Tensor> losses;
    GradientShare share;
  };
  // `norm_column` is where their norm is logged. The closure is for optimizers that evaluate the loss anew.
  void run(Optimizer& optimizer, const Origin& origin, const std::string& norm_column,
           const Optimizer::Closure& closure);
  GradientReducer* reducer() { return reducer_ ? &*reducer_ : nullptr; }
  const NonfiniteGuard& guard() const noexcept { return guard_; }
  GradScaler* scaler() const { return state_.scaler ? &*state_.scaler : nullptr; }

 private:
  void measure(Optimizer& optimizer, std::span<const at::Tensor> losses, const std::string& norm_column);
  at::Tensor clip(Optimizer& optimizer, const std::string& column);  // undefined: the norm is not known
  void step(Optimizer& optimizer, const Optimizer::Closure& closure);
  RecordedUpdate* recorded();  // nullptr: every operator is called
  void follow_schedule(Optimizer& optimizer) const;
  void require_plain_step(const Optimizer& optimizer) const;

  TrainState& state_;
  const TrainerInfo& info_;
  const TrainerOptions& options_;
  const Callbacks& callbacks_;
  NonfiniteGuard guard_;
  GradientNorms norms_;
  DeviceRates rates_;                       // that a schedule changes
  std::optional<RecordedUpdate> recorded_;  // of a device
  LoneGroup alone_;
  std::optional<GradientReducer> reducer_;  // of a training by several processes, or with gradient_shards
  std::optional<OptimizerShards> shards_;   // with shard_optimizer_state
};

}  // namespace kindling
