#include "data/loading/array_series.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <utility>

#include "base/joined.h"
#include "data/loading/file_pattern.h"
#include "data/loading/sample_ranges.h"
#include "kindling/base/error.h"
#include "kindling/base/log.h"
#include "kindling/base/number_text.h"
#include "kindling/data/split.h"

namespace kindling {
namespace {

constexpr std::int64_t kMostRolloutStarts = 64;

using Rows = std::vector<std::int64_t>;

std::size_t index_of(std::int64_t number) { return static_cast<std::size_t>(number); }

[[noreturn]] void refuse_key(const std::string& key, const std::string& found, const std::string& wanted,
                             const std::string& remedy = {}) {
  throw ConfigError({.place = "data." + key, .found = found, .wanted = wanted, .remedy = remedy});
}

void require_no_pair_options(const ArrayDataOptions& options) {
  const std::pair<const char*, bool> of_pairs[] = {{"layout", options.layout != "time"},
                                                   {"series", !options.series.empty()},
                                                   {"files_continue", options.files_continue},
                                                   {"input_noise", options.input_noise != 0},
                                                   {"rollout_steps", options.rollout_steps != 0}};
  for (const auto& [key, is_set] : of_pairs)
    if (is_set)
      refuse_key(key, "it is set, and data.horizon is not", "data.horizon, for targets that are later rows");
}

// Returns the number that the array has for each row.
Rows numbers_in(const SourceArray& series, std::int64_t num_rows) {
  const at::Tensor& like = series.values;
  if (!at::isIntegralType(like.scalar_type(), /*includeBool=*/true) || like.numel() != num_rows ||
      like.dim() == 0 || like.size(0) != num_rows)
    series.refuse("an integer for each row, [" + std::to_string(num_rows) + "]");
  const at::Tensor values = series.all_samples().to(at::kLong).contiguous();
  const auto* const first = values.const_data_ptr<std::int64_t>();
  return {first, first + num_rows};
}

// Returns the file of each row, counted from 0.
Rows files_of_rows(const SourceArray& array) {
  Rows files(index_of(array.values.size(0)));
  auto row = files.begin();
  for (std::size_t file = 0; file < array.file_sizes.size(); ++file) {
    const auto end = row + array.file_sizes[file];
    std::fill(row, end, static_cast<std::int64_t>(file));
    row = end;
  }
  return files;
}

// Parts of the rows of a source that reads whole rows only.
class DividedRows final : public RowSource {
 public:
  DividedRows(std::shared_ptr<const RowSource> whole, std::size_t parts, std::size_t part_bytes)
      : whole_(std::move(whole)), parts_(parts), part_bytes_(part_bytes) {}

  void read(const std::int64_t* numbers, std::int64_t count, char* out) const override {
    std::vector<char> row(parts_ * part_bytes_);
    std::int64_t read = -1;
    for (std::int64_t i = 0; i < count; ++i, out += part_bytes_) {
      const std::int64_t number = numbers[i] / static_cast<std::int64_t>(parts_);
      if (number != read) whole_->read(&number, 1, row.data());
      read = number;
      std::memcpy(out, row.data() + index_of(numbers[i]) % parts_ * part_bytes_, part_bytes_);
    }
  }
  std::string place() const override { return whole_->place(); }

 private:
  std::shared_ptr<const RowSource> whole_;
  std::size_t parts_, part_bytes_;
};

void require_memory_for_times(const SourceArray& array, std::int64_t num_times) {
  const double bytes = static_cast<double>(array.values.numel()) * static_cast<double>(num_times) *
                       static_cast<double>(array.values.element_size()),
               most = static_cast<double>(most_array_bytes_in_memory(/*is_required=*/false));
  if (bytes <= most) return;
  throw DataError({.place = array.place(),
                   .found = "repeated for each of " + std::to_string(num_times) + " times, it has " +
                            bytes_text(bytes, 3),
                   .wanted = "at most " + bytes_text(most, 3) + " in memory",
                   .remedy = "store it with a value for each time, [series, time, …]; it then stays in its "
                             "file"});
}

// The last rows, or one of several equal parts.
SplitIndices split_in_time(std::int64_t num_rows, const ArrayDataOptions& options) {
  std::int64_t begin = 0, end = num_rows;
  if (options.folds) {
    begin = num_rows * options.fold / *options.folds;
    end = num_rows * (options.fold + 1) / *options.folds;
  } else {
    const auto count = std::floor(static_cast<double>(num_rows) * *options.val_fraction + 0.5);
    begin = num_rows - std::max<std::int64_t>(static_cast<std::int64_t>(count), 1);
  }
  SplitIndices rows{.train = consecutive_rows(0, begin), .val = consecutive_rows(begin, end - begin)};
  for (std::int64_t row = end; row < num_rows; ++row) rows.train.push_back(row);
  return rows;
}

enum class Side : std::uint8_t { none, train, val };

// Returns the side of each row.
std::vector<Side> sides_of(const Trajectories& trajectories, std::size_t num_rows,
                           const ArrayDataOptions& options, const DataOptions& shared) {
  const bool is_split = options.val_fraction || options.folds;
  if (!is_split && !shared.train && !shared.val) return std::vector<Side>(num_rows, Side::train);
  const bool is_single = trajectories.size() == 1;
  const std::int64_t count = std::ssize(is_single ? trajectories.front() : Rows(trajectories.size()));
  SplitIndices parts;
  if (!is_split)
    parts = samples_in_ranges(count, shared);
  else if (is_single)
    parts = split_in_time(count, options);
  else
    parts = split_indices(count, {.val_fraction = options.val_fraction,
                                  .folds = options.folds,
                                  .fold = options.fold,
                                  .seed = options.seed,
                                  .place = "data"});
  std::vector<Side> sides(num_rows, Side::none);
  for (const Side side : {Side::train, Side::val})
    for (const std::int64_t part : side == Side::train ? parts.train : parts.val) {
      if (is_single)
        sides[index_of(trajectories.front()[index_of(part)])] = side;
      else
        for (const std::int64_t row : trajectories[index_of(part)]) sides[index_of(row)] = side;
    }
  return sides;
}

void add_pair(std::int64_t input, std::int64_t target, RowPairs& pairs) {
  pairs.inputs.push_back(input);
  pairs.targets.push_back(target);
}

void sort_by_targets(RowPairs& pairs) {
  if (std::ranges::is_sorted(pairs.targets)) return;
  Rows order = consecutive_rows(0, std::ssize(pairs.targets));
  std::ranges::sort(order, {}, [&](std::int64_t pair) { return pairs.targets[index_of(pair)]; });
  RowPairs sorted;
  for (const std::int64_t pair : order)
    add_pair(pairs.inputs[index_of(pair)], pairs.targets[index_of(pair)], sorted);
  pairs = std::move(sorted);
}

void require_pairs(const Trajectories& trajectories, std::int64_t horizon, const std::string& place) {
  const auto num_short = std::ranges::count_if(
      trajectories, [&](const Rows& trajectory) { return std::ssize(trajectory) <= horizon; });
  const std::string needed = counted(index_of(horizon + 1), "row");
  if (num_short == std::ssize(trajectories))
    throw DataError({.place = place,
                     .found = "no series has " + needed,
                     .wanted = "at least one pair of rows that are data.horizon apart",
                     .remedy = "set a smaller data.horizon"});
  if (num_short > 0)
    log_warning(place + ": " + std::to_string(num_short) + " of " + std::to_string(trajectories.size()) +
                " series have fewer than " + needed + ", and so no pair");
}

// A trajectory's position from which a model is rolled out.
struct RolloutStart {
  std::size_t trajectory, position;
};

// Returns for each position of a trajectory how many steps a rollout from there can be compared with.
Rows steps_from(const Rows& trajectory, std::size_t horizon, const std::vector<Side>& sides) {
  Rows steps(trajectory.size());
  for (std::size_t i = trajectory.size(); i-- > 0;)
    if (i + horizon < trajectory.size() && sides[index_of(trajectory[i + horizon])] == Side::val)
      steps[i] = 1 + steps[i + horizon];
  return steps;
}

// Throws ConfigError if there are none.
std::vector<RolloutStart> rollout_starts(const Trajectories& trajectories, const std::vector<Side>& sides,
                                         const ArrayDataOptions& options) {
  std::vector<RolloutStart> starts;
  std::int64_t most = 0;
  std::size_t num_validated = 0, num_short = 0;
  for (std::size_t number = 0; number < trajectories.size(); ++number) {
    const Rows steps = steps_from(trajectories[number], index_of(*options.horizon), sides);
    const std::int64_t longest = steps.empty() ? 0 : *std::ranges::max_element(steps);
    most = std::max(most, longest);
    if (longest > 0) ++num_validated;
    if (longest > 0 && longest < options.rollout_steps) ++num_short;
    for (std::size_t i = 0; i < steps.size(); ++i)
      if (steps[i] >= options.rollout_steps) starts.push_back({number, i});
  }
  const std::string wanted = std::to_string(options.rollout_steps);
  if (starts.empty())
    refuse_key("rollout_steps",
               wanted + ", and the longest series of the validation has " + counted(most, "step"),
               "at most " + std::to_string(most) + ", or longer series");
  if (num_short > 0)
    log_warning("data.rollout_steps: " + std::to_string(num_short) + " of " + std::to_string(num_validated) +
                " series of the validation have fewer than " + wanted + " steps, and are not rolled out");
  return starts;
}

RolloutPairs rollouts_of(const Trajectories& trajectories, const std::vector<Side>& sides,
                         const ArrayDataOptions& options, std::int64_t batch_size) {
  const std::vector<RolloutStart> starts = rollout_starts(trajectories, sides, options);
  const std::int64_t most = std::min(kMostRolloutStarts, std::ssize(starts)),
                     num_groups = (most + batch_size - 1) / batch_size, group_size = most / num_groups,
                     count = num_groups * group_size;
  const std::size_t horizon = index_of(*options.horizon);
  RolloutPairs rollouts{.group_size = group_size};
  for (std::int64_t group = 0; group < num_groups; ++group)
    for (std::int64_t step = 0; step < options.rollout_steps; ++step)
      for (std::int64_t i = group * group_size; i < (group + 1) * group_size; ++i) {
        const auto [number, position] = starts[index_of(i * std::ssize(starts) / count)];
        const Rows& rows = trajectories[number];
        const std::size_t at = position + index_of(step) * horizon;
        add_pair(rows[at], rows[at + horizon], rollouts.pairs);
      }
  return rollouts;
}

}  // namespace

void check_pair_options(const ArrayDataOptions& options, const DataOptions& shared) {
  if (options.normalize_by && (options.normalize || options.divisor != 1 || options.keep_type))
    refuse_key("normalize_by", "it is set, and normalize, divisor or keep_type, too", "one of them");
  if (!options.horizon) return require_no_pair_options(options);
  const std::pair<const char*, bool> of_labels[] = {
      {"labels_file", options.labels_file.has_value()},
      {"more_label_channels", !options.more_label_channels.empty()},
      {"val_inputs", !options.val_inputs.empty()},
      {"weights", !options.weights.empty()},
      {"stratify", options.stratify},
      {"keep_type", options.keep_type},
      {"shuffle_chunks", options.shuffle_chunks > 0},
      {"sampler", shared.sampler.value_or("") == "balanced"}};
  for (const auto& [key, is_set] : of_labels)
    if (is_set)
      refuse_key(key, "it is set, and data.horizon, too", "one of them: the targets are rows of data.inputs");
  if (options.files_continue && (options.layout != "time" || !is_file_pattern(options.file)))
    refuse_key("files_continue",
               options.layout != "time"
                   ? "it is set, and data.layout says that each file has whole trajectories"
                   : "it is set, and data.file is not a pattern",
               "a pattern of files of rows, such as data.file = \"t*.nc\"");
  if (options.layout != "time" && !options.series.empty())
    refuse_key("series", "it is set, and data.layout says that the array has a dimension of trajectories",
               "one of them");
  if (has_one_array(options.file) && !options.series.empty())
    refuse_key("series", "it is set, and the file has one array",
               "a .npz file with the trajectories' numbers");
  if (options.folds && options.fold >= *options.folds)
    refuse_key("fold", std::to_string(options.fold),
               "a number below data.folds, " + std::to_string(*options.folds));
  if (options.rollout_steps > 0 && !options.val_fraction && !options.folds && !shared.val)
    refuse_key("rollout_steps", "it is set, and there are no validation samples",
               "data.val_fraction, data.folds or data.val");
}

std::optional<SeriesLengths> series_lengths(const SourceArray& inputs, const ArrayDataOptions& options) {
  if (!options.horizon) return std::nullopt;
  const bool has_series = options.layout == "series_time";
  if (inputs.values.dim() < (has_series ? 3 : 2))
    inputs.refuse(has_series ? "states of series, [series, time, …]" : "states in time, [time, …]");
  if (!has_series) return std::nullopt;
  return SeriesLengths{inputs.values.size(0), inputs.values.size(1)};
}

SourceArray rows_of_series(const SourceArray& array, const SeriesLengths& lengths) {
  const auto [num_series, num_times] = lengths;
  SourceArray rows = array;
  if (array.values.dim() == 0 || array.values.size(0) != num_series)
    array.refuse("as many series as in the other inputs, [" + std::to_string(num_series) + ", …]");
  if (array.values.dim() > 1 && array.values.size(1) == num_times) {
    rows.values = array.values.flatten(0, 1);
    if (!array.rows) return rows;
    const std::size_t parts = index_of(num_times),
                      bytes = array.values.numel() / rows.values.size(0) * array.values.element_size();
    rows.rows = array.rows->divided(parts);
    if (!rows.rows) rows.rows = std::make_shared<DividedRows>(array.rows, parts, bytes);
    return rows;
  }
  require_memory_for_times(array, num_times);
  rows.values = array.all_samples().repeat_interleave(num_times, 0);
  rows.rows = nullptr;
  return rows;
}

Trajectories trajectories_of(SourceArray& states, const SourceArray* series,
                             const std::optional<SeriesLengths>& lengths) {
  Trajectories trajectories;
  if (lengths) {
    states = rows_of_series(states, *lengths);
    for (std::int64_t i = 0; i < lengths->num_series; ++i)
      trajectories.push_back(consecutive_rows(i * lengths->num_times, lengths->num_times));
    return trajectories;
  }
  const std::int64_t num_rows = states.values.size(0);
  if (series == nullptr && states.file_sizes.empty()) return {consecutive_rows(0, num_rows)};
  const Rows files = files_of_rows(states),
             numbers = series == nullptr ? Rows(files.size()) : numbers_in(*series, num_rows);
  if (series != nullptr) series->require_files_like(states);
  std::map<std::pair<std::int64_t, std::int64_t>, std::size_t> known;  // by file and number
  for (std::size_t row = 0; row < files.size(); ++row) {
    const auto [found, is_new] = known.try_emplace({files[row], numbers[row]}, trajectories.size());
    if (is_new) trajectories.emplace_back();
    trajectories[found->second].push_back(static_cast<std::int64_t>(row));
  }
  return trajectories;
}

SeriesPairs split_pairs(const Trajectories& trajectories, const ArrayDataOptions& options,
                        const DataOptions& shared, const std::string& place) {
  const std::int64_t horizon = *options.horizon;
  require_pairs(trajectories, horizon, place);
  std::size_t num_rows = 0;
  for (const Rows& trajectory : trajectories) num_rows += trajectory.size();
  const std::vector<Side> sides = sides_of(trajectories, num_rows, options, shared);
  SeriesPairs pairs;
  for (const Rows& trajectory : trajectories)
    for (std::size_t i = 0; i + index_of(horizon) < trajectory.size(); ++i) {
      const std::int64_t input = trajectory[i], target = trajectory[i + index_of(horizon)];
      const Side side = sides[index_of(target)];
      if (side == Side::val) add_pair(input, target, pairs.val);
      if (side == Side::train && sides[index_of(input)] != Side::val) add_pair(input, target, pairs.train);
    }
  const bool validates = std::ranges::find(sides, Side::val) != sides.end();
  for (const bool is_val : {false, true})
    if ((is_val ? pairs.val : pairs.train).inputs.empty() && (!is_val || validates))
      refuse_key("horizon", std::string("no pair is left for ") + (is_val ? "validation" : "training"),
                 "at least one", "validate other rows, or set a smaller data.horizon");
  sort_by_targets(pairs.train);
  sort_by_targets(pairs.val);
  if (options.rollout_steps > 0)
    pairs.rollouts = rollouts_of(trajectories, sides, options, shared.batch_size);
  return pairs;
}

std::vector<std::int64_t> consecutive_rows(std::int64_t first, std::int64_t count) {
  Rows rows(index_of(count));
  std::iota(rows.begin(), rows.end(), first);
  return rows;
}

std::vector<std::int64_t> rows_of(const RowPairs& pairs) {
  Rows rows = pairs.inputs;
  rows.insert(rows.end(), pairs.targets.begin(), pairs.targets.end());
  std::ranges::sort(rows);
  rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
  return rows;
}

}  // namespace kindling
