#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kindling/base/error.h"
#include "kindling/base/export.h"
#include "training/parallel/gradient_reducer.h"
#include "training/parallel/optimizer_shards.h"
#include "training/step/nonfinite_guard.h"
#include "training/step/step.h"

namespace kindling {

// The learning rates of one optimizer as scalars on its device, where a captured update reads them, so that
// they may change from step to step. They are float32, which the devices' fused operators read.
class DeviceRates {
 public:
  // For its lifetime, replaces numeric learning rates of the optimizer by these scalars, if its rule can be
  // captured and its parameters are on a device. Skips groups with float64 parameters, for which float32 is
  // not exact enough, or with sparse gradients.
  class Scope {
   public:
    Scope(DeviceRates& rates, Optimizer& optimizer);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Optimizer& optimizer_;
    std::vector<std::size_t> given_;  // groups
  };

 private:
  struct Rate {
    at::Tensor tensor;
    double number;  // the value that it holds
  };
  std::vector<Rate> rates_;  // of the groups
};

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

// Creates the optimizer of the run, before its first step, which is to train with this batch. A model whose
// lazy layers have no shape yet, or that has no parameters at all, runs that step once before, for the
// parameters alone: its buffers, hidden states and gradients stay as they are, nothing is logged, and lazy
// layers draw their weights in the step itself. The random state stays, too, unless weights were created that
// no layer draws again.
void create_optimizer(const StepContext& context, const Batch& batch);

struct RepeatedLossConditions {
  bool reduces = false;  // gradients are reduced over several ranks or gradient_shards
  bool is_on_cpu = true;
};

// Returns an error for every option that an optimizer which evaluates the loss of a batch several times does
// not support; nothing for other optimizers.
KINDLING_API std::vector<ErrorParts> repeated_loss_errors(const Optimizer& optimizer,
                                                          const TrainerOptions& options,
                                                          const RepeatedLossConditions& conditions);

// The part of a step that is the same for every kind of model: the update of an optimizer with the gradients
// that its parameters have. Gradients are reduced over the ranks, unscaled, measured, checked and clipped;
// then come schedule, callbacks and the update itself.
class OptimizerUpdate {
 public:
  // The callbacks and the stop outlive it. `capture` nullptr: runs eagerly.
  OptimizerUpdate(const StepContext& context, const Callbacks& callbacks, StopConsensus& stop,
                  std::unique_ptr<UpdateCapture> capture);

  // The losses that the gradients come from, and the weight of the gradients among those of other ranks.
  struct Origin {
    std::span<const at::Tensor> losses;
    GradientShare share;
    // For the spike test: their weighted mean or, if gradients are reduced, the sum of the losses times their
    // weights. Absent: no label has counted, or losses are not tested.
    std::optional<StepLoss> loss{};
  };
  // `name` is that of a ManualModule's optimizer, empty for the only one of a model. The closure is for
  // optimizers that evaluate the loss again.
  void run(Optimizer& optimizer, std::string_view name, const Origin& origin,
           const Optimizer::Closure& closure);
  // Announces that the next backward is the last one before run(): gradients are sent while it is running.
  void send_while_ready(const Optimizer& optimizer, GradientShare share);
  bool reduces() const noexcept { return reducer_.has_value(); }

  // Ends a step of one run(): marks in its row of the log whether the update was skipped, reverts what a
  // skipped step has added to the sums of metrics, and adjusts the scale of the gradients.
  void end_step();
  // The same for a step of any number of updates: between the first and the last call, one call per run().
  void begin_updates();
  void end_update();
  void end_updates();

 private:
  // What is kept for each optimizer.
  struct OptimizerSlot {
    std::unique_ptr<GradientPlan> plan{};     // how its gradients are reduced
    OptimizerShard shard{};                   // with shard_optimizer_state
    DeviceRates rates{};                      // the rates that a schedule changes
    std::vector<std::string> norm_columns{};  // log columns, by parameter
  };
  OptimizerSlot& slot(std::string_view name);
  // What the work between backward and update reads. It does not outlive the step: a tensor that does would
  // keep a captured step from being replayed.
  struct Measured {
    at::Tensor global_loss{};              // not finite if a loss of any rank was not
    std::span<const at::Tensor> losses{};  // empty: global_loss
    std::optional<StepLoss> loss{};
    SpikeDetector* detector = nullptr;  // without on_spike
  };
  Measured reduce(Optimizer& optimizer, OptimizerSlot& slot, const Origin& origin);
  void measure(Optimizer& optimizer, std::string_view name, const Measured& of);
  static std::span<const at::Tensor> losses_of(const Measured& of);
  static std::vector<at::Tensor> tensors_read(const Measured& of);
  void mark_gradient_norms(Optimizer& optimizer, std::vector<std::string>& columns) const;
  at::Tensor clip(Optimizer& optimizer, std::string_view name);  // returns the norm; undefined: unknown
  void step(Optimizer& optimizer, OptimizerSlot& slot, const Optimizer::Closure& closure);
  // Returns nullptr if steps are eager; forward and backward may give up capture at any time.
  UpdateCapture* capture() const;
  bool is_watched() const;  // by the observer of a replay
  GradScaler* scaler() const { return context_.state.scaler ? &*context_.state.scaler : nullptr; }
  void adjust_scale(const at::Tensor& found_inf) const;
  void follow_schedule(Optimizer& optimizer) const;
  void require_supported(const Optimizer& optimizer) const;

  const StepContext context_;
  const Callbacks& callbacks_;
  const std::unique_ptr<UpdateCapture> capture_;
  NonfiniteGuard guard_;
  // Of the updates of the running step, if it may have several.
  std::optional<NonfiniteGuard::Flag> skipped_, spike_;
  at::Tensor found_inf_;  // reported by the scaler
  LoneGroup alone_;
  std::optional<GradientReducer> reducer_;  // with several ranks, or with gradient_shards
  std::map<std::string, OptimizerSlot, std::less<>> slots_;
  std::int64_t slot_generation_ = -1;  // see TrainState::optimizer_generation()
};

}  // namespace kindling
