#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "kindling/training/replay.h"
#include "training/state/training_context.h"
#include "training/step/step_observer.h"

namespace kindling {

// Collects the steps of a replay from the first one that is requested on, and the details of that one.
class StepWatcher : public StepObserver {
 public:
  // The context outlives it.
  StepWatcher(TrainingContext& context, std::int64_t step) : context_(context), step_(step) {}

  bool is_watching() const override { return running_step() >= step_; }
  void before_batch(const Batch& batch, const at::Tensor& indices) override;
  void on_gradients(const Optimizer& optimizer) override;
  void after_batch(bool updated) override;

  std::vector<ReplayedStep> take_steps() { return std::move(steps_); }

 private:
  std::int64_t running_step() const { return context_.state.progress.global_step + 1; }
  ReplayedBatch watched(const Batch& batch, const at::Tensor& indices);
  void set_gradient(const std::string& name, double norm, const at::Tensor& gradient);
  void add_log_values();
  void compare_losses(std::int64_t first_row);

  TrainingContext& context_;
  const std::int64_t step_;
  ReplayedStep current_{};
  double squared_norm_ = 0;
  std::vector<ReplayedStep> steps_;
};

}  // namespace kindling
