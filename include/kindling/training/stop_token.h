#pragma once

#include <atomic>
#include <memory>

#include "kindling/training/fit_result.h"

namespace kindling {

// Asks a Trainer to stop after the step it is in. The one thing of a Trainer that other threads and signal
// handlers may call; it may outlive the Trainer. The first reason given counts, but that it has diverged
// always.
class StopToken {
 public:
  StopToken() : reason_(std::make_shared<std::atomic<FitReason>>(FitReason::finished)) {}

  void request_stop(FitReason reason = FitReason::requested) const noexcept {
    if (reason == FitReason::diverged) return reason_->store(reason, std::memory_order_relaxed);
    FitReason none = FitReason::finished;
    reason_->compare_exchange_strong(none, reason, std::memory_order_relaxed);
  }
  bool stop_requested() const noexcept { return reason() != FitReason::finished; }
  FitReason reason() const noexcept { return reason_->load(std::memory_order_relaxed); }  // finished: none
  void reset() const noexcept { reason_->store(FitReason::finished, std::memory_order_relaxed); }

 private:
  std::shared_ptr<std::atomic<FitReason>> reason_;
};

}  // namespace kindling
