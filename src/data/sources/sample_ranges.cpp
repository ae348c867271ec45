#include "data/sources/sample_ranges.h"

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
  samples.train = samples_of_range(options.train.value_or(std::array<std::int64_t, 2>{0, num_samples}),
                                   num_samples, "data.train");
  if (options.val) samples.val = samples_of_range(*options.val, num_samples, "data.val");
  return samples;
}

}  // namespace kindling
