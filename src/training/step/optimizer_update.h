#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "distributed/lone_group.h"
#include "optim/device_rates.h"
#include "optim/nonfinite_guard.h"
#include "training/parallel/gradient_reducer.h"
#include "training/parallel/optimizer_shards.h"
#include "training/state/training_context.h"

namespace kindling {

// Runs what a step does after backward. A device whose steps are captured starts each of the two as one graph.
class UpdateCapture {
 public:
  virtual ~UpdateCapture() = default;
  // `work` reads the losses and the gradients, and may change the latter.
  virtual void measure(Optimizer& optimizer, std::span<const at::Tensor> losses,
                       const std::function<void()>& work) = 0;
  // `work` calls step().
  virtual void step(Optimizer& optimizer, const std::function<void()>& work) = 0;
};

// The part of a step that is the same for every kind of model: the update of an optimizer with the gradients
// that its parameters have. Gradients are reduced over the ranks, unscaled, measured, checked and clipped;
// then come schedule, callbacks and the update itself.
class OptimizerUpdate {
 public:
  // The context outlives it. `capture` nullptr: every operator is called.
  OptimizerUpdate(TrainingContext& context, std::unique_ptr<UpdateCapture> capture);

  // The losses that the gradients come from, and what these are among those of other ranks.
  struct Origin {
    std::span<const at::Tensor> losses;
    GradientShare share;
  };
  // `name` is that of a ManualModule's optimizer, empty for the only one of a model. The closure is for
  // optimizers that evaluate the loss again.
  void run(Optimizer& optimizer, std::string_view name, const Origin& origin,
           const Optimizer::Closure& closure);
  // The backward that comes now is the last one before run(): gradients are sent while it is running.
  void send_while_ready(const Optimizer& optimizer, GradientShare share);
  bool reduces() const noexcept { return reducer_.has_value(); }
  const NonfiniteGuard& guard() const noexcept { return guard_; }
  GradScaler* scaler() const { return context_.state.scaler ? &*context_.state.scaler : nullptr; }

 private:
  // What the update keeps for one optimizer.
  struct OptimizerSlot {
    std::unique_ptr<GradientPlan> plan{};     // how its gradients travel
    OptimizerShard shard{};                   // with shard_optimizer_state
    DeviceRates rates{};                      // that a schedule changes
    std::vector<std::string> norm_columns{};  // of the log, for each of its parameters
  };
  OptimizerSlot& slot(std::string_view name);
  void measure(Optimizer& optimizer, std::string_view name, std::span<const at::Tensor> losses);
  void mark_gradient_norms(Optimizer& optimizer, std::vector<std::string>& columns) const;
  at::Tensor clip(Optimizer& optimizer, std::string_view name);  // undefined: the norm is not known
  void step(Optimizer& optimizer, OptimizerSlot& slot, const Optimizer::Closure& closure);
  // nullptr when operators are called one by one; forward and backward may find out so at any time.
  UpdateCapture* capture() const;
  void follow_schedule(Optimizer& optimizer) const;
  void require_plain_step(const Optimizer& optimizer) const;

  TrainingContext& context_;
  const std::unique_ptr<UpdateCapture> capture_;
  NonfiniteGuard guard_;
  LoneGroup alone_;
  std::optional<GradientReducer> reducer_;  // with several ranks, or with gradient_shards
  std::map<std::string, OptimizerSlot, std::less<>> slots_;
  std::int64_t slot_generation_ = -1;  // see TrainState::optimizer_generation()
};

}  // namespace kindling
