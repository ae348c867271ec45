#pragma once

namespace kindling {

// How a run treats an option besides reading it. TrainerOptions decides all three for each of its options,
// and a test fails for undecided ones; other option structs may leave them undecided.
struct OptionPolicy {
  // may_change: `kindling fit --resume` accepts another value; everything else needs --allow-config-change.
  enum class OnResume { undecided, fixed, may_change } on_resume = OnResume::undecided;
  // must_agree: a fit throws DistributedError when the ranks have different values.
  enum class AcrossRanks { undecided, may_differ, must_agree } across_ranks = AcrossRanks::undecided;
  // reset: trial fits, such as those of the learning-rate finder, start from the default instead.
  enum class InTrials { undecided, kept, reset } in_trials = InTrials::undecided;

  constexpr bool is_decided() const noexcept {
    return on_resume != OnResume::undecided && across_ranks != AcrossRanks::undecided &&
           in_trials != InTrials::undecided;
  }
};

}  // namespace kindling
