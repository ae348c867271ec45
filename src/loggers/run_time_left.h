#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>

#include "kindling/loggers/progress.h"

namespace kindling {

// Estimates when a fit reaches max_epochs or max_steps from its speed since start(), validations included. A
// header of its own because the estimate is tested without a clock.
class RunTimeLeft {
 public:
  // What ends the fit; 0: unknown.
  struct Limits {
    std::int64_t max_epochs = 0, max_steps = 0;
    std::int64_t num_batches = 0;  // per epoch
  };

  bool is_started() const noexcept { return start_.has_value(); }
  // Where this process begins to train, at a time in seconds.
  void start(const Progress& at, double now_s) { start_ = Start{at, now_s}; }

  // Returns seconds; -1 if unknown.
  double estimate(const Progress& at, const Limits& limits, double now_s) const {
    constexpr double kUnknown = std::numeric_limits<double>::infinity();
    double left = kUnknown;
    const auto limit = [&](std::int64_t begun, std::int64_t done, std::int64_t total) {
      if (total <= 0 || done <= begun) return;
      const double each = (now_s - start_->now_s) / static_cast<double>(done - begun);
      left = std::min(left, each * static_cast<double>(std::max<std::int64_t>(total - done, 0)));
    };
    if (!start_) return -1;
    const auto batches = [&](const Progress& when) { return when.epoch * limits.num_batches + when.batch; };
    limit(batches(start_->at), batches(at), limits.max_epochs * limits.num_batches);
    limit(start_->at.global_step, at.global_step, limits.max_steps);
    return left == kUnknown ? -1 : left;
  }

 private:
  struct Start {
    Progress at;
    double now_s;
  };
  std::optional<Start> start_;
};

}  // namespace kindling
