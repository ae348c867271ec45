#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "cli/sweep/sweep_plan.h"

namespace kindling {

// A run's epochs: the monitored value (NaN if not finite) and the steps done at each.
struct EpochValue {
  double value = 0;
  std::int64_t steps = 0;
};
using EpochValues = std::map<std::int64_t, EpochValue>;

// Returns whether `value` is worse than the median of the others; the median of an even number is the mean of
// the two in the middle. NaN is worse than every number.
bool is_worse_than_median(double value, std::vector<double> others, bool higher_is_better);

// Returns the first epoch after which median stopping ends the run; 0 if there is none.
std::int64_t median_stop_epoch(const EpochValues& run, const std::vector<const EpochValues*>& others,
                               const MedianStopping& options, bool higher_is_better);

}  // namespace kindling
