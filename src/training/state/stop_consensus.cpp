#include "training/state/stop_consensus.h"

#include <ATen/ops/from_blob.h>

#include <array>
#include <charconv>

#include "kindling/base/error.h"

namespace kindling {

void StopConsensus::reset() noexcept {
  token_.reset();
  agreed_ = FitReason::finished;
  has_save_request_ = wants_early_stop_ = false;
}

void StopConsensus::stop_early() noexcept {
  if (group_ == nullptr) return token_.request_stop(FitReason::early_stop);
  if (agreed_ == FitReason::finished) agreed_ = FitReason::early_stop;
  wants_early_stop_ = false;
}

StopConsensus::Votes StopConsensus::votes() const {
  Votes votes{};
  if (const FitReason reason = token_.reason(); reason != FitReason::finished)
    votes[static_cast<std::size_t>(reason)] = 1;
  if (requests_.early_stop && requests_.early_stop()) votes[kEarlyStop] = 1;
  if (requests_.save && requests_.save()) votes[kSave] = 1;
  return votes;
}

// Divergence takes precedence over all other reasons, as it does in a single process.
void StopConsensus::count(std::span<const float> sums) noexcept {
  const auto diverged = static_cast<std::size_t>(FitReason::diverged);
  if (sums[diverged] > 0) agreed_ = FitReason::diverged;
  for (std::size_t i = 0; i < kNumReasons && agreed_ == FitReason::finished; ++i)
    if (sums[i] > 0) agreed_ = static_cast<FitReason>(i);
  wants_early_stop_ = wants_early_stop_ || sums[kEarlyStop] > 0;  // on a GPU an older vote may come later
  has_save_request_ = has_save_request_ || sums[kSave] > 0;
}

void StopConsensus::vote_now() {
  if (group_ == nullptr) return;
  Votes sums = votes();
  group_->all_reduce(at::from_blob(sums.data(), {static_cast<std::int64_t>(kNumVotes)}, at::kFloat));
  count(sums);
}

TimeLimit::TimeLimit(const std::string& text) {
  if (text.empty()) return;
  // Days, then hours per day, minutes per hour, seconds per minute.
  constexpr std::array<double, 4> kParts{1, 24, 60, 60};
  double seconds = 0;
  const char *at = text.data(), *const end = at + text.size();
  bool is_good = true;
  for (std::size_t i = 0; i < kParts.size() && is_good; ++i) {
    unsigned part = 0;
    const auto [after, error] = std::from_chars(at, end, part);
    const bool is_last = i + 1 == kParts.size();
    is_good = error == std::errc() && (is_last ? after == end : after != end && *after == ':') &&
              (i == 0 || part < kParts[i]);
    seconds = seconds * kParts[i] + part;
    at = is_last ? end : after + 1;
  }
  if (!is_good || seconds == 0)
    throw ConfigError({.place = "max_time",
                       .found = "'" + text + "'",
                       .wanted = "a duration above 0 as days:hours:minutes:seconds",
                       .remedy = "for half a day: \"00:12:00:00\""});
  limit_ = seconds;
}

void TimeLimit::start(double spent_s) {
  spent_before_ = spent_s;
  start_ = std::chrono::steady_clock::now();
}

double TimeLimit::spent_s() const {
  return spent_before_ + std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
}

}  // namespace kindling
