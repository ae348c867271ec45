#pragma once

#include <utility>

#include "kindling/training/callback.h"
#include "program/launched_run.h"
#include "program/run_config.h"
#include "program/run_folder.h"

namespace kindling {

// Of a run that goes on: its config takes the place of the former one when it has taken up the saved state.
// Behind its first step what it does not go on from has been put aside, and a restart of its processes takes
// its latest checkpoint instead of what the command names.
class TakenUpRun : public Callback {
 public:
  TakenUpRun(const RunFolder& folder, const RunConfig& config, LaunchPlace place)
      : folder_(folder), config_(config), place_(std::move(place)) {}
  void on_resume(Trainer&, Module&) override {
    folder_.write_config(config_.text());
    is_to_be_remembered_ = true;
  }
  void on_train_batch_end(Trainer&, Module&) override {
    if (std::exchange(is_to_be_remembered_, false)) remember_run(place_, folder_.path());
  }

 private:
  const RunFolder& folder_;
  const RunConfig& config_;
  const LaunchPlace place_;
  bool is_to_be_remembered_ = false;
};

}  // namespace kindling
