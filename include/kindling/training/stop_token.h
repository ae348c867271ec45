#pragma once

#include <atomic>
#include <memory>

#include "kindling/training/fit_result.h"

namespace kindling {

// Requests that a Trainer stops after the current step. This is the only part of a Trainer that other threads
// and signal handlers may use; it may outlive the Trainer. The first reason counts, except that `diverged`
// always replaces it.
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
