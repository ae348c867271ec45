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

// Runs the part of a step after backward. A device whose steps are captured launches each of the two
// functions as one graph.
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
  // The context outlives it. `capture` nullptr: runs eagerly.
  OptimizerUpdate(TrainingContext& context, std::unique_ptr<UpdateCapture> capture);

  // The losses that the gradients come from, and the weight of the gradients among those of other ranks.
  struct Origin {
    std::span<const at::Tensor> losses;
    GradientShare share;
  };
  // `name` is that of a ManualModule's optimizer, empty for the only one of a model. The closure is for
  // optimizers that evaluate the loss again.
  void run(Optimizer& optimizer, std::string_view name, const Origin& origin,
           const Optimizer::Closure& closure);
  // Announces that the next backward is the last one before run(): gradients are sent while it is running.
  void send_while_ready(const Optimizer& optimizer, GradientShare share);
  bool reduces() const noexcept { return reducer_.has_value(); }
  const NonfiniteGuard& guard() const noexcept { return guard_; }
  GradScaler* scaler() const { return context_.state.scaler ? &*context_.state.scaler : nullptr; }

 private:
  // What is kept for each optimizer.
  struct OptimizerSlot {
    std::unique_ptr<GradientPlan> plan{};     // how its gradients are reduced
    OptimizerShard shard{};                   // with shard_optimizer_state
    DeviceRates rates{};                      // the rates that a schedule changes
    std::vector<std::string> norm_columns{};  // log columns, by parameter
  };
  OptimizerSlot& slot(std::string_view name);
  void measure(Optimizer& optimizer, std::string_view name, std::span<const at::Tensor> losses);
  void mark_gradient_norms(Optimizer& optimizer, std::vector<std::string>& columns) const;
  at::Tensor clip(Optimizer& optimizer, std::string_view name);  // returns the norm; undefined: unknown
  void step(Optimizer& optimizer, OptimizerSlot& slot, const Optimizer::Closure& closure);
  // Returns nullptr if steps are eager; forward and backward may give up capture at any time.
  UpdateCapture* capture() const;
  void follow_schedule(Optimizer& optimizer) const;
  void require_supported(const Optimizer& optimizer) const;

  TrainingContext& context_;
  const std::unique_ptr<UpdateCapture> capture_;
  NonfiniteGuard guard_;
  LoneGroup alone_;
  std::optional<GradientReducer> reducer_;  // with several ranks, or with gradient_shards
  std::map<std::string, OptimizerSlot, std::less<>> slots_;
  std::int64_t slot_generation_ = -1;  // see TrainState::optimizer_generation()
};

}  // namespace kindling
