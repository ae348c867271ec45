#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "data/loading/array_source.h"
#include "data/loading/pair_dataset.h"
#include "kindling/data/array_data_options.h"
#include "kindling/data/data_module.h"

namespace kindling {

// Throws ConfigError for options of pairs in time that contradict each other or others.
void check_pair_options(const ArrayDataOptions& options, const DataOptions& shared);

// The rows of each trajectory of an array, in the order of time.
using Trajectories = std::vector<std::vector<std::int64_t>>;

// The first two dimensions of an array [series, time, …].
struct SeriesLengths {
  std::int64_t num_series = 0, num_times = 0;
};

// Returns the lengths of the inputs, or nullopt without the layout "series_time". Throws DataError for states
// without a dimension of their own.
std::optional<SeriesLengths> series_lengths(const SourceArray& inputs, const ArrayDataOptions& options);

// Returns an array with a row for each time of each series: [series · time, …] of [series, time, …]. An array
// with other first two dimensions, [series, …], is repeated for each time; it is then in memory. Throws
// DataError for another number of series, and for one that is too large for that.
SourceArray rows_of_series(const SourceArray& array, const SeriesLengths& lengths);

// Returns the trajectories of the rows of `states`, which becomes rows_of_series() if it has lengths. Each of
// several files has its own. `series`: the array that the option names; nullptr: none. Throws DataError.
Trajectories trajectories_of(SourceArray& states, const SourceArray* series,
                             const std::optional<SeriesLengths>& lengths);

// The validation by rollout: states of trajectories that a model continues by itself.
struct RolloutPairs {
  RowPairs pairs{};  // for each group of starts: the pairs of the first step of all of them, then the second
  std::int64_t group_size = 0;  // the starts of a group
};

// The pairs of an array, in the order of their targets' rows.
struct SeriesPairs {
  RowPairs train{}, val{};
  RolloutPairs rollouts{};  // empty: none are requested
};

// Returns the pairs of a split: whole trajectories if there are several, else parts of the only one. A pair
// belongs to the set of its target; training pairs have no rows of the validation. Warns of trajectories
// that are too short. Throws ConfigError if training or validation has no pair, and DataError if no
// trajectory has one. `place` names the array.
SeriesPairs split_pairs(const Trajectories& trajectories, const ArrayDataOptions& options,
                        const DataOptions& shared, const std::string& place);

std::vector<std::int64_t> consecutive_rows(std::int64_t first, std::int64_t count);
// Returns the rows of pairs, ascending, each once.
std::vector<std::int64_t> rows_of(const RowPairs& pairs);

}  // namespace kindling
