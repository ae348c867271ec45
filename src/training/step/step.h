#pragma once

#include <cstdint>

#include "kindling/tensors/batch.h"
#include "training/state/training_context.h"

namespace kindling {

// What the steps of a run and their gradients use of a trainer.
struct StepContext {
  explicit StepContext(TrainingContext& context)
      : options(context.options),
        precision(context.placement.precision),
        state(context.state),
        calls(context.calls),
        capture(context.capture),
        observer(context.observer),
        clock(context.clock) {}

  const TrainerOptions& options;
  const Precision& precision;
  TrainState& state;
  ModelCalls& calls;
  CaptureMode& capture;
  StepObserver* const& observer;  // nullptr: not a replay
  EpochClock& clock;

  Device device() const { return state.log.device(); }
  bool needs_wide_sums() const { return device().is_cpu() && precision.has_16_bits(); }
  ProcessGroup* group() const noexcept { return options.process_group.get(); }  // nullptr: a single process
};

// Returns the number of batches whose gradients make one optimizer step on this rank: with gradient_shards
// each shard counts as one.
inline std::int64_t batches_per_step(const TrainerOptions& options) {
  const std::int64_t size = options.process_group ? options.process_group->size() : 1;
  return options.accumulate_grad_batches * (options.gradient_shards > 1 ? options.gradient_shards / size : 1);
}

// The place of a batch in the window of its optimizer step.
struct WindowPosition {
  std::int64_t index = 0;
  bool is_last = true;
};

// The result of training on a batch.
struct StepOutcome {
  bool updated = true;                   // false: the window is still open
  std::int64_t accumulated_batches = 0;  // of the open window
  std::int64_t num_samples = 0;          // of the batch, without padding
};

// Turns batches into an optimizer step: the gradients of one batch or of several (a window), then clipping,
// update and log, in this order. Reads no tensor on the host; the loop counts the progress. The optimizer
// exists before the first batch (see create_optimizer()), except in a ManualModule.
class Step {
 public:
  virtual ~Step() = default;
  // Runs forward and backward of a batch and adds its gradients to those of the window. After the last batch
  // of the window, updates with the mean gradient over all its samples.
  virtual StepOutcome run(const Batch& batch, WindowPosition at) = 0;
  // Updates with the gradients so far, for a window that ended unexpectedly.
  virtual void end_window() = 0;
  // Call it when no step follows for now: the epoch has ended, or training stops.
  virtual void end_epoch() {}
};

}  // namespace kindling
