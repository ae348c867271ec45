#include "data/loading/sample_ranges.h"

#include <array>
#include <string>

#include "kindling/base/error.h"

namespace kindling {

void require_range(const std::array<std::int64_t, 2>& range, std::int64_t num_samples, const char* place) {
  const auto [first, end] = range;
  if (first < 0 || first >= end || end > num_samples)
    throw ConfigError({.place = place,
                       .found = "the range [" + std::to_string(first) + ", " + std::to_string(end) + "]",
                       .wanted = "[first, end] with 0 <= first < end <= " + std::to_string(num_samples)});
}

SplitIndices samples_in_ranges(std::int64_t num_samples, const DataOptions& options) {
  constexpr std::array<std::int64_t, 2> kNone{0, 0};
  if (options.val) require_range(*options.val, num_samples, "data.val");
  if (options.train) require_range(*options.train, num_samples, "data.train");
  const auto is_in = [](const std::array<std::int64_t, 2>& range, std::int64_t sample) {
    return range[0] <= sample && sample < range[1];
  };
  const auto val = options.val.value_or(kNone);
  SplitIndices samples;
  for (std::int64_t sample = 0; sample < num_samples; ++sample) {
    const bool is_val = is_in(val, sample),
               is_train = options.train ? is_in(*options.train, sample) : !is_val;
    if (is_val && is_train)
      throw ConfigError({.place = "data.val",
                         .found = "row " + std::to_string(sample) + " is also in the range data.train",
                         .wanted = "ranges that do not overlap"});
    if (is_val) samples.val.push_back(sample);
    if (is_train) samples.train.push_back(sample);
  }
  if (samples.train.empty())
    throw ConfigError({.place = "data.val",
                       .found = "the range contains all rows",
                       .wanted = "at least one row that is left for training"});
  return samples;
}

}  // namespace kindling
