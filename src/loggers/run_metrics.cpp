#include "loggers/run_metrics.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace kindling {

// A group of values that are not finite has a NaN as its low and high.
void MetricSeries::join(Group& group, const Group& next) {
  if (!(group.low.value <= next.low.value) && !std::isnan(next.low.value)) group.low = next.low;
  if (!(group.high.value >= next.high.value) && !std::isnan(next.high.value)) group.high = next.high;
  group.size += next.size;
  group.has_gap = group.has_gap || next.has_gap;
}

void MetricSeries::merge_groups() {
  constexpr std::size_t kJoined = 2;
  group_size_ *= kJoined;
  std::vector<Group> merged;
  for (const Group& group : groups_) {
    if (merged.empty() || merged.back().size >= group_size_)
      merged.push_back(group);
    else
      join(merged.back(), group);
  }
  groups_ = std::move(merged);
}

void MetricSeries::add(const MetricPoint& point, Record::Kind kind) {
  const bool is_finite = std::isfinite(point.value);
  last_ = point;
  if (!is_finite) last_.value = std::numeric_limits<double>::quiet_NaN();
  ++num_values_;
  if (kind == Record::Kind::epoch) ++num_by_epoch_;
  if (is_finite) {
    sum_ += point.value;
    if (!lowest_ || point.value < lowest_->value) lowest_ = point;
    if (!highest_ || point.value > highest_->value) highest_ = point;
  } else {
    ++num_not_finite_;
  }
  const Group group{.low = last_, .high = last_, .has_gap = !is_finite};
  if (!groups_.empty() && groups_.back().size < group_size_)
    join(groups_.back(), group);
  else
    groups_.push_back(group);
  if (groups_.size() * (has_all() ? 1 : 2) <= kMostPoints) return;
  while (groups_.size() * 2 > kMostPoints) merge_groups();
}

std::vector<MetricPoint> MetricSeries::points() const {
  std::vector<MetricPoint> points;
  for (const Group& group : groups_) {
    const bool is_low_first = group.low.global_step <= group.high.global_step;
    const MetricPoint &first = is_low_first ? group.low : group.high,
                      &second = is_low_first ? group.high : group.low;
    points.push_back(first);
    if (second.global_step > first.global_step) points.push_back(second);
    if (!group.has_gap || std::isnan(first.value)) continue;
    points.push_back(points.back());
    points.back().value = std::numeric_limits<double>::quiet_NaN();
  }
  return points;
}

const MetricSeries* RunMetrics::find(std::string_view name) const {
  const auto found = series_.find(name);
  return found == series_.end() ? nullptr : &found->second;
}

namespace {

// The values of matrices, such as val_confusion[3][5], are too many for curves.
bool is_of_matrix(std::string_view name) { return name.ends_with(']') && name.find("][") != name.npos; }

}  // namespace

void RunMetrics::add(const Record& record) {
  ++num_records_;
  global_step_ = record.global_step;
  for (const auto& [name, value] : record.values) {
    if (is_of_matrix(name)) continue;
    auto found = series_.find(name);
    if (found == series_.end()) {
      if (series_.size() == kMostNames) continue;
      found = series_.try_emplace(name).first;
      names_.push_back(name);
    }
    found->second.add({.global_step = static_cast<double>(record.global_step),
                       .epoch = static_cast<double>(record.epoch),
                       .value = value},
                      record.kind);
  }
  if (record.kind == Record::Kind::epoch) add_epoch(record);
}

// Keeps the first epoch record and every stride-th after it.
void RunMetrics::add_epoch(const Record& record) {
  last_epoch_ = record;
  if (num_epochs_++ % epoch_stride_ != 0) return;
  epochs_.push_back(record);
  std::erase_if(epochs_.back().values, [](const auto& value) { return is_of_matrix(value.first); });
  if (epochs_.size() <= kMostEpochs) return;
  epoch_stride_ *= 2;
  std::vector<Record> kept;
  for (std::size_t i = 0; i < epochs_.size(); i += 2) kept.push_back(std::move(epochs_[i]));
  epochs_ = std::move(kept);
}

}  // namespace kindling
