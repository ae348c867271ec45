#pragma once

#include <kindling/training/callback.h>

#include "clock.h"

namespace kindling_bench {

// One epoch of a fit, its validation included, is one repeat.
class EpochClock : public kindling::Callback {
 public:
  explicit EpochClock(Clock& clock) : clock_(clock) {}  // outlives it
  void on_train_epoch_start(kindling::Trainer&, kindling::Module&) override { clock_.tick(); }
  void on_fit_end(kindling::Trainer&, kindling::Module&, const kindling::FitResult&) override {
    clock_.tick();
  }

 private:
  Clock& clock_;
};

}  // namespace kindling_bench
