#include "cli/sweep/median_rule.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace kindling {

bool is_worse_than_median(double value, std::vector<double> others, bool higher_is_better) {
  if (others.empty()) return false;
  const auto rank = [&](double one) {  // larger is better
    if (std::isnan(one)) return -std::numeric_limits<double>::infinity();
    return higher_is_better ? one : -one;
  };
  for (double& other : others) other = rank(other);
  std::ranges::sort(others);
  const std::size_t middle = others.size() / 2;
  const double upper = others[middle], lower = others[(others.size() - 1) / 2];
  return rank(value) < (upper == lower ? upper : lower + (upper - lower) / 2);
}

std::int64_t median_stop_epoch(const EpochValues& run, const std::vector<const EpochValues*>& others,
                               const MedianStopping& options, bool higher_is_better) {
  for (const auto& [epoch, own] : run) {
    if (epoch < options.min_epochs) continue;
    std::vector<double> values;
    for (const EpochValues* other : others)
      if (const auto found = other->find(epoch); found != other->end()) values.push_back(found->second.value);
    if (static_cast<std::int64_t>(values.size()) < options.min_runs) continue;
    if (is_worse_than_median(own.value, std::move(values), higher_is_better)) return epoch;
  }
  return 0;
}

}  // namespace kindling
