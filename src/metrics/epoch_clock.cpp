#include "metrics/epoch_clock.h"

#include <numeric>
#include <utility>

namespace kindling {

Activity EpochClock::turn_to(Activity next) {
  const auto now = Clock::now();
  spent_[static_cast<std::size_t>(current_)] += now - std::exchange(since_, now);
  return std::exchange(current_, next);
}

EpochClock::Times EpochClock::spent() {
  turn_to(current_);
  return spent_;
}

std::array<double, kActivityNames.size()> EpochClock::fractions_since(const Times& start) {
  const Times now = spent();
  const auto sum = [](const Times& times) {
    return std::accumulate(times.begin(), times.end(), Clock::duration(0));
  };
  const auto total = sum(now) - sum(start) + Clock::duration(1);  // never 0
  std::array<double, kActivityNames.size()> fractions{};
  for (std::size_t i = 0; i < fractions.size(); ++i)
    fractions[i] = static_cast<double>((now[i] - start[i]).count()) / static_cast<double>(total.count());
  return fractions;
}

ActivityScope::ActivityScope(EpochClock* clock, Activity activity)
    : clock_(clock != nullptr && clock->is_running() ? clock : nullptr) {
  if (clock_ == nullptr) return;
  former_ = clock_->turn_to(activity);
  in_trace_.emplace(at::RecordScope::USER_SCOPE);
  if (in_trace_->isActive()) in_trace_->before(kActivityNames[static_cast<std::size_t>(activity)]);
}

}  // namespace kindling
