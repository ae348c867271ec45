#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kindling/base/export.h"
#include "kindling/loggers/record.h"

namespace kindling {

// A value of a metric and its position in the run.
struct MetricPoint {
  double global_step = 0, epoch = 0;  // epoch: from 1
  double value = 0;                   // NaN: not finite
};

// The values of one metric, in bounded memory. Keeps kMostPoints values exactly; of more, it keeps the
// smallest and the largest of each group of consecutive values, so that spikes survive.
class KINDLING_API MetricSeries {
 public:
  static constexpr std::size_t kMostPoints = 2048;

  void add(const MetricPoint& point, Record::Kind kind);

  // Returns the kept values in the order of the run. A NaN stands for values that were not finite.
  std::vector<MetricPoint> points() const;
  bool has_all() const noexcept { return group_size_ == 1; }                  // every value is kept
  bool is_by_epoch() const noexcept { return num_by_epoch_ == num_values_; }  // all are of epoch records

  // Of all values.
  std::int64_t num_values() const noexcept { return num_values_; }
  std::int64_t num_not_finite() const noexcept { return num_not_finite_; }
  double sum() const noexcept { return sum_; }  // of those that are finite
  const MetricPoint& last() const noexcept { return last_; }
  const std::optional<MetricPoint>& lowest() const noexcept { return lowest_; }  // the first of equal ones
  const std::optional<MetricPoint>& highest() const noexcept { return highest_; }

 private:
  struct Group {
    MetricPoint low, high;
    std::size_t size = 1;
    bool has_gap = false;  // a value that was not finite
  };
  static void join(Group& group, const Group& next);
  void merge_groups();

  std::vector<Group> groups_;
  std::size_t group_size_ = 1;  // of all groups but the last
  std::int64_t num_values_ = 0, num_by_epoch_ = 0, num_not_finite_ = 0;
  double sum_ = 0;
  MetricPoint last_;
  std::optional<MetricPoint> lowest_, highest_;
};

// What the records of a run say, in bounded memory.
class KINDLING_API RunMetrics {
 public:
  static constexpr std::size_t kMostNames = 256, kMostEpochs = 400;

  void add(const Record& record);

  // The metrics in the order of their first values. Single numbers of large metrics, such as
  // val_confusion_matrix[2][3], have no series: see last_epoch(). Of more than kMostNames metrics, those that
  // come first are kept.
  const std::vector<std::string>& names() const noexcept { return names_; }
  const MetricSeries* find(std::string_view name) const;  // nullptr: not found

  // The epoch records without those single numbers: all of them, or every epoch_stride()-th of a long run.
  const std::vector<Record>& epochs() const noexcept { return epochs_; }
  std::int64_t epoch_stride() const noexcept { return epoch_stride_; }
  const std::optional<Record>& last_epoch() const noexcept { return last_epoch_; }  // complete
  std::int64_t num_epochs() const noexcept { return num_epochs_; }                  // epoch records
  std::int64_t global_step() const noexcept { return global_step_; }                // of the last record
  bool is_empty() const noexcept { return num_records_ == 0; }

 private:
  void add_epoch(const Record& record);

  std::map<std::string, MetricSeries, std::less<>> series_;
  std::vector<std::string> names_;
  std::vector<Record> epochs_;
  std::optional<Record> last_epoch_;
  std::int64_t num_records_ = 0, num_epochs_ = 0, epoch_stride_ = 1, global_step_ = 0;
};

// Returns the record in a line of a metrics.jsonl; nothing if the line is not a JSON object of numbers with a
// global_step. A null becomes NaN. The epoch is 0 if the line has none, as in files of other programs. Every
// reader of such files uses this function.
KINDLING_API std::optional<Record> record_of_line(std::string_view line);

// The contents of a metrics.jsonl.
struct RunRecords {
  RunMetrics metrics{};
  std::size_t num_damaged_lines = 0;  // skipped: not JSON objects of numbers
};

// Reads a metrics.jsonl, of which an active run may be appending to the end or a kill may have cut it off. Of
// a file to which several runs were appended, the last run counts. Throws Error if there is no such file or
// it cannot be read, but not for its contents.
KINDLING_API RunRecords read_metrics_file(const std::filesystem::path& path);

}  // namespace kindling
