#pragma once

#include <optional>
#include <string_view>

#include "kindling/nn/manual_module.h"
#include "nn/manual_updates.h"
#include "training/step/optimizer_update.h"
#include "training/step/step.h"

namespace kindling {

// The gradients of the loss, times `seed` unless that is undefined, for this optimizer's parameters alone;
// none where it depends on none of them.
void backward_to(const Optimizer& optimizer, const at::Tensor& loss, const at::Tensor& seed,
                 bool retain_graph);

// At the end of an epoch, with its log on the host: logs which optimizers of a ManualModule have run no update.
void warn_unused_optimizers(const TrainState& state);

// The step of a ManualModule: its training_step runs the updates.
class ManualStep : public Step, private ManualUpdates {
 public:
  // The context outlives the step. Throws ConfigError for options that such a model cannot have.
  explicit ManualStep(TrainingContext& context);

  void run(const Batch& batch, bool ends_window) override;
  void end_window() override {}  // each batch is a step

 private:
  void update(std::string_view name, const at::Tensor& loss, bool retain_graph) override;
  at::Tensor training_step(const Batch& batch);
  void note_skipped();
  void end_step();

  TrainingContext& context_;
  TrainState& state_;
  const std::shared_ptr<ProcessGroup> group_of_norms_;  // nullptr: batch norm is each process's own
  OptimizerUpdate update_;
  // Of the updates of the step under way.
  std::optional<NonfiniteGuard::Skipped> skipped_;
  at::Tensor found_inf_;  // by the scaler
  std::int64_t num_counted_ = 0;
};

}  // namespace kindling
