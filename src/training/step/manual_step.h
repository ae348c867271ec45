#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <string_view>

#include "kindling/nn/manual_module.h"
#include "nn/model_calls.h"
#include "training/step/optimizer_update.h"
#include "training/step/step.h"

namespace kindling {

// Computes the gradients of the loss, times `seed` unless undefined, for this optimizer's parameters only.
// Does nothing if the loss does not depend on any of them.
void backward_to(const Optimizer& optimizer, const at::Tensor& loss, const at::Tensor& seed,
                 bool retain_graph);

// Warns about optimizers of a ManualModule without an update in the epoch, whose log must be on the host.
void warn_unused_optimizers(const TrainState& state);

// The step of a ManualModule: its training_step runs the updates.
class ManualStep : public Step, private ManualUpdates {
 public:
  // Throws ConfigError for options that such a model cannot have.
  ManualStep(const StepContext& context, std::unique_ptr<OptimizerUpdate> update);

  StepOutcome run(const Batch& batch, WindowPosition at) override;
  void end_window() override {}  // each batch is a step

 private:
  void update(std::string_view name, const at::Tensor& loss, bool retain_graph) override;
  at::Tensor training_step(const Batch& batch);
  std::optional<StepLoss> tested_loss(const at::Tensor& loss) const;

  const StepContext context_;
  TrainState& state_;
  const std::shared_ptr<ProcessGroup>
      group_of_norms_;  // nullptr: each rank has its own batch norm statistics
  const std::unique_ptr<OptimizerUpdate> update_;
  std::int64_t num_counted_ = 0;   // samples of the running step
  std::set<std::string> watched_;  // optimizers, see warn_of_repeated_uses()
};

}  // namespace kindling
