#include "data/sources/sample_ranges.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <vector>

#include "kindling/base/error.h"

namespace kindling {
namespace {

std::vector<std::int64_t> samples_of_range(const std::array<std::int64_t, 2>& range, std::int64_t num_samples,
                                           const char* place) {
  const auto [first, end] = range;
  if (first < 0 || first >= end || end > num_samples)
    throw ConfigError({.place = place,
                       .found = "the range [" + std::to_string(first) + ", " + std::to_string(end) + "]",
                       .wanted = "[first, end] with 0 <= first < end <= " + std::to_string(num_samples)});
  std::vector<std::int64_t> samples;
  for (std::int64_t sample = first; sample < end; ++sample) samples.push_back(sample);
  return samples;
}

}  // namespace

SplitIndices samples_in_ranges(std::int64_t num_samples, const DataOptions& options) {
  SplitIndices samples;
  if (options.val) samples.val = samples_of_range(*options.val, num_samples, "data.val");
  if (options.train) {
    samples.train = samples_of_range(*options.train, num_samples, "data.train");
    if (options.val && (*options.train)[0] < (*options.val)[1] && (*options.val)[0] < (*options.train)[1])
      throw ConfigError({.place = "data.val",
                         .found = "row " + std::to_string(std::max((*options.train)[0], (*options.val)[0])) +
                                  " is also in the range data.train",
                         .wanted = "ranges that do not overlap"});
    return samples;
  }
  const auto [first, end] = options.val.value_or(std::array<std::int64_t, 2>{0, 0});
  for (std::int64_t sample = 0; sample < num_samples; ++sample)
    if (sample < first || sample >= end) samples.train.push_back(sample);
  if (samples.train.empty())
    throw ConfigError({.place = "data.val",
                       .found = "the range contains all rows",
                       .wanted = "at least one row that is left for training"});
  return samples;
}

}  // namespace kindling
