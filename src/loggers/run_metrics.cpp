#include "loggers/run_metrics.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "kindling/base/file.h"

namespace kindling {
namespace {

constexpr std::size_t kBlockBytes = std::size_t{1} << 20;
constexpr std::size_t kMaxLineBytes = std::size_t{1} << 26;  // a confusion matrix of 1,000 classes takes less
constexpr double kMaxInteger = 0x1p53;                       // exact as a double

// Receives the parts of a line from the JSON parser. Every function returns whether the line can still be a
// record: one object of numbers, with a global_step.
class RecordReader {
 public:
  using json = nlohmann::json;

  bool start_object(std::size_t) { return ++depth_ == 1; }
  bool key(const std::string& name) {
    if (first_key_.empty()) first_key_ = name;
    key_ = name;
    return true;
  }
  bool number_integer(json::number_integer_t number) { return take(static_cast<double>(number)); }
  bool number_unsigned(json::number_unsigned_t number) { return take(static_cast<double>(number)); }
  bool number_float(json::number_float_t number, const std::string&) { return take(number); }
  bool null() { return take(std::numeric_limits<double>::quiet_NaN()); }
  bool boolean(bool) { return false; }
  bool string(const std::string&) { return false; }
  bool binary(const json::binary_t&) { return false; }
  bool end_object() { return true; }
  bool start_array(std::size_t) { return false; }
  bool end_array() { return false; }
  bool parse_error(std::size_t, const std::string&, const json::exception&) { return false; }

  // Returns the record once the whole line has been read.
  std::optional<Record> record() {
    if (record_.global_step < 0) return std::nullopt;
    record_.kind = first_key_ == "epoch"                        ? Record::Kind::epoch
                   : record_.find("train_loss_step") != nullptr ? Record::Kind::step
                                                                : Record::Kind::validation;
    return std::move(record_);
  }

 private:
  bool take(double value) {
    if (depth_ != 1) return false;
    const bool is_step = key_ == "global_step", is_epoch = key_ == "epoch", is_digest = key_ == "log_digest";
    if (!is_step && !is_epoch && !is_digest) {
      record_.values.emplace_back(key_, value);
      return true;
    }
    if (!(value >= 0 && value <= kMaxInteger)) return false;
    (is_step     ? record_.global_step
     : is_digest ? record_.digest
                 : record_.epoch) = static_cast<std::int64_t>(value);
    return true;
  }

  int depth_ = 0;
  std::string first_key_, key_;
  Record record_{.global_step = -1};
};

// Collects records from the pieces of a file.
class LineCollector {
 public:
  void add(std::string_view piece) {
    while (!piece.empty()) {
      const std::size_t end = piece.find('\n');
      const std::string_view part = piece.substr(0, end);
      if (line_.size() + part.size() <= kMaxLineBytes)
        line_ += part;
      else
        is_too_long_ = true;
      if (end == std::string_view::npos) return;
      finish_line();
      piece.remove_prefix(end + 1);
    }
  }

  // The last line may be incomplete, because the run is appending it or was killed then.
  RunRecords finish() {
    if (auto record = record_of_line(line_)) take(*record);
    return std::move(file_);
  }

 private:
  void finish_line() {
    const auto record = is_too_long_ ? std::nullopt : record_of_line(line_);
    if (record)
      take(*record);
    else
      ++file_.num_damaged_lines;
    line_.clear();
    is_too_long_ = false;
  }

  void take(const Record& record) {
    if (record.global_step < file_.metrics.global_step())
      file_.metrics = {};  // the first record of another run
    file_.metrics.add(record);
  }

  RunRecords file_;
  std::string line_;
  bool is_too_long_ = false;
};

}  // namespace

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

// The parser takes a zero, which a power cut may leave, for the end of its input.
std::optional<Record> record_of_line(std::string_view line) {
  RecordReader reader;
  const bool is_read = line.starts_with('{') && line.find('\0') == std::string_view::npos &&
                       nlohmann::json::sax_parse(line, &reader);
  return is_read ? reader.record() : std::nullopt;
}

RunRecords read_metrics_file(const std::filesystem::path& path) {
  const InputFile file(path);
  LineCollector lines;
  std::string block;
  for (std::size_t begin = 0; begin < file.size(); begin += block.size()) {
    block.resize(std::min(kBlockBytes, file.size() - begin));
    file.read(begin, block.data(), block.size());
    lines.add(block);
  }
  return lines.finish();
}

}  // namespace kindling
