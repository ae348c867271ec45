#pragma once

#include <memory>

#include "kindling/loggers/progress.h"
#include "training/step.h"

namespace kindling {

// Another step, which it watches at the beginning of epochs, ever more rarely: warns, once, when a step makes
// the host wait.
class WatchedStep : public Step {
 public:
  WatchedStep(std::unique_ptr<Step> step, const Progress& progress)
      : step_(std::move(step)), progress_(progress) {}
  void run(const Batch& batch, bool ends_window) override;
  void end_window() override { step_->end_window(); }

 private:
  std::unique_ptr<Step> step_;
  const Progress& progress_;
  bool has_warned_ = false;
};

}  // namespace kindling
