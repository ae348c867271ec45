#include "training/agreed_stop.h"

#include <ATen/ops/from_blob.h>

namespace kindling {

void AgreedStop::reset() noexcept {
  token_.reset();
  agreed_ = FitReason::finished;
  has_heard_of_save_ = false;
}

AgreedStop::Votes AgreedStop::votes() const {
  Votes votes{};
  if (const FitReason wish = token_.reason(); wish != FitReason::finished)
    votes[static_cast<std::size_t>(wish)] = 1;
  if (group_ != nullptr && wishes_save_ && wishes_save_()) votes[kNumReasons] = 1;
  return votes;
}

// That it has diverged counts before all else, as with a process alone.
void AgreedStop::hear(std::span<const float> sums) noexcept {
  const auto diverged = static_cast<std::size_t>(FitReason::diverged);
  if (sums[diverged] > 0) agreed_ = FitReason::diverged;
  for (std::size_t i = 0; i < kNumReasons && agreed_ == FitReason::finished; ++i)
    if (sums[i] > 0) agreed_ = static_cast<FitReason>(i);
  has_heard_of_save_ = has_heard_of_save_ || sums[kNumReasons] > 0;
}

void AgreedStop::ask_all() {
  if (group_ == nullptr) return;
  Votes sums = votes();
  group_->all_reduce(at::from_blob(sums.data(), {static_cast<std::int64_t>(kNumVotes)}, at::kFloat));
  hear(sums);
}

}  // namespace kindling
