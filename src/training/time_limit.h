#pragma once

#include <chrono>
#include <optional>
#include <string>

namespace kindling {

// TrainerOptions::max_time: how long a training may take, the parts before its stops included.
class TimeLimit {
 public:
  // "days:hours:minutes:seconds", empty for no limit; throws ConfigError.
  explicit TimeLimit(const std::string& text);

  bool is_set() const noexcept { return limit_.has_value(); }
  // Starts the clock; `spent_s`: before now.
  void start(double spent_s = 0);
  bool is_over() const { return limit_ && spent_s() >= *limit_; }
  double spent_s() const;

 private:
  std::optional<double> limit_;  // seconds
  double spent_before_ = 0;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace kindling
