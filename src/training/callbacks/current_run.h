#pragma once

#include <string>
#include <utility>

#include "kindling/training/trainer.h"

namespace kindling {

// The run that a callback's state belongs to. Custom training loops have no on_fit_start, so a new run id
// shows that another run has started; a resumed run has loaded its state before.
class CurrentRun {
 public:
  // True if the trainer's run is not that of the last call.
  bool changes(const Trainer& trainer) {
    return std::exchange(run_id_, trainer.run_id()) != trainer.run_id();
  }
  // set_loaded() notes that a state has been loaded; resumes() returns in on_resume whether one was.
  void set_loaded() noexcept { is_loaded_ = true; }
  bool resumes(const Trainer& trainer) {
    run_id_ = trainer.run_id();
    return std::exchange(is_loaded_, false);
  }

 private:
  std::string run_id_;
  bool is_loaded_ = false;
};

}  // namespace kindling
