#pragma once

#include <memory>

#include "training/step.h"
#include "training/train_state.h"

namespace kindling {

// Another step, which it watches at the beginning of epochs, ever more rarely: warns, once, when a step makes
// the host wait.
class WatchedStep : public Step {
 public:
  WatchedStep(std::unique_ptr<Step> step, const TrainState& state) : step_(std::move(step)), state_(state) {}
  void run(const Batch& batch, bool ends_window) override;
  void end_window() override { step_->end_window(); }
  void end_epoch() override { step_->end_epoch(); }

 private:
  std::unique_ptr<Step> step_;
  const TrainState& state_;
  bool has_warned_ = false;
};

}  // namespace kindling
