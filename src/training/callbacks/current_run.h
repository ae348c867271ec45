#pragma once

#include <string>
#include <utility>

#include "kindling/training/trainer.h"

namespace kindling {

// Which training a callback's state belongs to. Own loops have no on_fit_start: another run id tells that
// another training has begun, and one that goes on has loaded its state before.
class CurrentRun {
 public:
  // Whether the trainer is at another training than at the last call.
  bool changes(const Trainer& trainer) {
    return std::exchange(run_id_, trainer.run_id()) != trainer.run_id();
  }
  // A state has been loaded; in on_resume, whether it has been.
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
