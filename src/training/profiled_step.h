#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <vector>

#include "training/operator_trace.h"
#include "training/step.h"
#include "training/train_state.h"

namespace kindling {

// Another step, of which it traces a few (TrainerOptions::profile), with what lies between them. The trace
// ends with its batches or the epoch.
class ProfiledStep : public Step {
 public:
  // The options and the state outlive it. Throws Error when there can be no folder for the trace.
  ProfiledStep(std::unique_ptr<Step> step, const TrainState& state, const TrainerOptions& options);
  ~ProfiledStep() override;
  void run(const Batch& batch, bool ends_window) override;
  void end_window() override { step_->end_window(); }
  void end_epoch() override;

 private:
  void prepare();
  void write(const std::vector<OperatorRow>& rows) const;

  std::unique_ptr<Step> step_;
  const TrainState& state_;
  const TrainerOptions& options_;
  std::int64_t num_batches_ = 0;  // that have been run
  std::int64_t first_traced_ = 0;
  std::unique_ptr<OperatorTrace> trace_;  // nullptr: it is over
};

}  // namespace kindling
