#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "training/inspect/operator_trace.h"
#include "training/state/train_state.h"
#include "training/step/step.h"

namespace kindling {

// Wraps a step and watches it at the beginning of epochs 0, 1, 2, 4, 8, …: warns once when a step makes the
// host wait.
class WatchedStep : public Step {
 public:
  WatchedStep(std::unique_ptr<Step> step, const TrainState& state) : step_(std::move(step)), state_(state) {}
  StepOutcome run(const Batch& batch, WindowPosition place) override;
  void end_window() override { step_->end_window(); }
  void end_epoch() override { step_->end_epoch(); }

 private:
  std::unique_ptr<Step> step_;
  const TrainState& state_;
  bool has_warned_ = false;
};

// Wraps a step: an operator whose gradient is NaN becomes an error that names it. LibTorch's anomaly mode is
// process-wide: it is on while a step runs, and then what was set before is restored.
class AnomalyStep : public Step {
 public:
  AnomalyStep(std::unique_ptr<Step> step, const TrainState& state) : step_(std::move(step)), state_(state) {}
  StepOutcome run(const Batch& batch, WindowPosition place) override;
  void end_window() override;
  void end_epoch() override { step_->end_epoch(); }

 private:
  template <class Call>
  auto in_anomaly_mode(const Call& call) const;

  std::unique_ptr<Step> step_;
  const TrainState& state_;
};

// Wraps a step and traces a few batches (TrainerOptions::profile), with what runs between them. The trace
// ends with its batches or the epoch.
class ProfiledStep : public Step {
 public:
  // The options and the state outlive it. Throws Error if the directory for the trace cannot be created.
  ProfiledStep(std::unique_ptr<Step> step, const TrainState& state, const TrainerOptions& options);
  ~ProfiledStep() override;
  StepOutcome run(const Batch& batch, WindowPosition place) override;
  void end_window() override { step_->end_window(); }
  void end_epoch() override;

 private:
  void prepare();
  void write(const std::vector<OperatorRow>& rows) const;

  std::unique_ptr<Step> step_;
  const TrainState& state_;
  const TrainerOptions& options_;
  std::int64_t num_batches_ = 0;  // that have run
  std::int64_t first_traced_ = 0;
  std::unique_ptr<OperatorTrace> trace_;  // nullptr: finished
};

// Returns the step, watched for host waits, and inspected further where the options ask for it. The state
// and the options outlive it.
inline std::unique_ptr<Step> inspected(std::unique_ptr<Step> step, const TrainState& state,
                                       const TrainerOptions& options) {
  step = std::make_unique<WatchedStep>(std::move(step), state);
  if (options.detect_anomaly) step = std::make_unique<AnomalyStep>(std::move(step), state);
  if (options.profile && !options.profile_dir.empty())
    step = std::make_unique<ProfiledStep>(std::move(step), state, options);
  return step;
}

}  // namespace kindling
