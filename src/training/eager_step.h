#pragma once

#include "training/callbacks.h"
#include "training/nonfinite_guard.h"
#include "training/step.h"
#include "training/train_state.h"
#include "training/trainer_info.h"

namespace kindling {

// The step as LibTorch runs it, operator by operator.
class EagerStep : public Step {
 public:
  // All references outlive the step.
  EagerStep(TrainState& state, const TrainerInfo& info, const TrainerOptions& options,
            const Callbacks& callbacks);

  // Throws Error for a loss that is no scalar.
  void run(const Batch& batch) override;

 private:
  at::Tensor gradients(const Batch& batch);  // returns the loss
  at::Tensor clip();                         // returns the norm; undefined: it is not known
  void update();
  void follow_schedule(Optimizer& optimizer) const;
  void require_scalar(const at::Tensor& loss) const;

  TrainState& state_;
  const TrainerInfo& info_;
  const TrainerOptions& options_;
  const Callbacks& callbacks_;
  NonfiniteGuard guard_;
};

}  // namespace kindling
