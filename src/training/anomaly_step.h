#pragma once

#include <memory>
#include <string>
#include <utility>

#include "training/step.h"
#include "training/train_state.h"

namespace kindling {

// Another step, in which an operator whose gradient is NaN is an error that names it. LibTorch's anomaly mode
// is the whole process's: it holds while a step runs, and what was set before comes back.
class AnomalyStep : public Step {
 public:
  AnomalyStep(std::unique_ptr<Step> step, const TrainState& state) : step_(std::move(step)), state_(state) {}
  void run(const Batch& batch, bool ends_window) override;
  void end_window() override;
  void end_epoch() override { step_->end_epoch(); }

 private:
  template <class Call>
  void in_anomaly_mode(const Call& call) const;

  std::unique_ptr<Step> step_;
  const TrainState& state_;
};

}  // namespace kindling
