#include "training/epoch_clock.h"

#include <numeric>
#include <utility>

namespace kindling {

Activity EpochClock::turn_to(Activity next) {
  const auto now = Clock::now();
  spent_[static_cast<std::size_t>(current_)] += now - std::exchange(since_, now);
  return std::exchange(current_, next);
}

std::array<double, kActivityNames.size()> EpochClock::shares() {
  turn_to(current_);
  const auto total = std::accumulate(spent_.begin(), spent_.end(), Clock::duration(1));
  std::array<double, kActivityNames.size()> shares{};
  for (std::size_t i = 0; i < shares.size(); ++i)
    shares[i] = static_cast<double>(spent_[i].count()) / static_cast<double>(total.count());
  return shares;
}

ActivityScope::ActivityScope(EpochClock* clock, Activity activity) : clock_(clock) {
  if (clock_ == nullptr) return;
  former_ = clock_->turn_to(activity);
  in_trace_.emplace(at::RecordScope::USER_SCOPE);
  if (in_trace_->isActive()) in_trace_->before(kActivityNames[static_cast<std::size_t>(activity)]);
}

}  // namespace kindling
