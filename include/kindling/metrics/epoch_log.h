#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kindling/base/export.h"
#include "kindling/device/device.h"
#include "kindling/metrics/logged_values.h"
#include "kindling/metrics/metric.h"
#include "kindling/tensors/state_dict.h"

namespace kindling {

// The log of an epoch, in the memory of the device that computes it: one row per batch, one float32 per
// value; the rows of a step follow each other. A batch marks its values; append() writes them into fixed
// slots and these, by one operation, into the log, at a position that is kept on the device. Nothing waits;
// move_to_host() brings everything over in one copy. On the CPU the log is plain memory.
class KINDLING_API EpochLog {
 public:
  // `capacity`: values that fit before the memory grows (it doubles, on the device, without a wait).
  explicit EpochLog(Device device, std::int64_t capacity = 4096);
  ~EpochLog();
  EpochLog(EpochLog&&) noexcept;
  EpochLog& operator=(EpochLog&&) noexcept;

  // What becomes of a column's values: means over the epoch, numbers of single steps only, a metric, marks of
  // rows for the training alone, which no mean and no record shows. Columns are saved with these numbers.
  enum class Kind { mean, step_only, metric, internal };
  struct Column {
    std::string name;
    Kind kind = Kind::mean;
    std::shared_ptr<const Metric> metric{};
  };
  // The number of a name, given at its first use. Fast when names come in the same order in every row.
  std::size_t column(std::string_view name, Kind kind = Kind::mean);
  // Only if it has been given.
  std::optional<std::size_t> find_column(std::string_view name, Kind kind) const;
  const std::vector<Column>& columns() const noexcept { return columns_; }

  // Puts a value (one element, any dtype, device or host) into the row that is being made; its tensor is read
  // by append(). A second value for a column replaces the first. Throws DataError for more than one element.
  void mark(std::size_t column, const at::Tensor& value, ValueOptions options = {});
  void mark(std::size_t column, double value, ValueOptions options = {});
  void mark(std::string_view name, const at::Tensor& value, ValueOptions options = {}) {
    mark(column(name), value, options);
  }
  // Adds what a batch gives to a metric: one number as a value of the row, a larger tensor to sums on the
  // device. Throws DataError for another shape than before.
  void mark(std::string_view name, const std::shared_ptr<const Metric>& metric, const at::Tensor& part);
  // Takes back what has been added to sums since the last call if `left_out`, a number on the device, is not
  // 0; undefined: nothing is taken back.
  void settle(const at::Tensor& left_out);
  bool has_marks() const noexcept { return !marks_.empty() || !parts_.empty(); }
  // Forgets what has been marked: the batch that it was of is not going to be a row.
  void drop_marks();
  void drop_weighed();  // the same of means and metrics alone: the batch counts nothing
  // Ends the row with what has been marked. Of a row without weight only marks and numbers of its step stay.
  void append(const RowTag& tag);
  std::int64_t num_rows() const noexcept { return num_rows_; }
  RowTag tag(std::int64_t row) const;

  // Starts an asynchronous copy of the rows that have not been asked for yet, unless one is still under way.
  void start_preview();
  // How many rows have reached the host, asked without waiting.
  std::int64_t rows_on_host();
  // Brings everything to the host: one copy, one wait (none of either on the CPU).
  void move_to_host();

  // Of rows on the host; nothing where they have no such value. Of several rows the mean by weight, of a
  // step_only or internal column the last; a metric's number is that of these rows alone.
  std::optional<double> value(std::int64_t row, std::size_t column, std::int64_t num_rows = 1) const;
  std::int64_t rows_of_step(std::int64_t row) const;  // from this one on, of the same step
  std::set<std::int64_t> marked_steps(std::optional<std::size_t> column) const;  // that are not 0 there
  // One number per column that has any: the weighted mean Σ weight·value / Σ weight over all rows, or the
  // metric, in double precision. Steps that have a value other than 0 in the column `left_out` have no
  // weight; what they have added to sums is a matter of settle(). Requires move_to_host().
  NamedValues means(std::optional<std::size_t> left_out = {}) const { return means(totals(left_out)); }
  std::vector<NamedTotal> totals(std::optional<std::size_t> left_out = {}) const;
  NamedValues means(const std::vector<NamedTotal>& totals) const;

  void clear();  // forgets the rows, keeps names and memory

  // All rows, with what marks them, and the marks of the row that is being made. Saving moves the log to the
  // host; loading replaces what is there. Metrics are asked for by their columns' names.
  // Throws CheckpointError.
  using MetricOfName = std::function<std::shared_ptr<const Metric>(const std::string& name)>;
  void save(StateDict& state, const std::string& prefix);
  void load(const StateDict& state, const std::string& prefix, const MetricOfName& metric_of);

  Device device() const noexcept { return device_; }

 private:
  friend class MarkedRow;
  struct Mark {
    std::size_t column;
    double weight;  // negative: the row's
    at::Tensor tensor;
    double number;  // where there is no tensor
  };
  struct Slot {
    std::size_t column;
    double weight;
  };
  // Rows of consecutive batches with the same slots and weight.
  struct Segment {
    std::int64_t first_row, num_rows, first_value;
    RowTag first;
    std::vector<Slot> slots;
  };
  struct Sums;  // of a metric with more than one number
  struct Preview;
  void add_parts();
  bool has_rows_of(std::size_t column) const;
  Mark& mark_of(std::size_t column, ValueOptions options);
  Segment& segment_for(const RowTag& tag);
  void grow(std::int64_t values);
  void write_on_host();
  void write_on_device();
  void prepare_mirror();
  void move_values_and_sums();
  void load_marks(const StateDict& state, const std::string& prefix);
  void load_rows(const StateDict& state, const std::string& prefix);
  NamedTotal total_of(const Sums& sums, const std::set<std::int64_t>& no_steps) const;
  const Segment* segment_of(std::int64_t row) const;
  const float* host_values() const;
  Device device_;
  std::vector<Column> columns_;
  std::size_t expected_column_ = 0;  // where the next look-up starts
  std::vector<Mark> marks_;
  std::vector<Segment> segments_;
  std::vector<std::int64_t> steps_;  // of each row
  std::vector<double> rates_;
  std::vector<Sums> sums_;
  std::vector<std::pair<std::size_t, at::Tensor>> parts_;  // of the row that is being made, by place in sums_
  std::int64_t num_rows_ = 0, num_values_ = 0;
  at::Tensor values_;                // float32 [capacity] on the device
  at::Tensor mirror_;                // the values in pinned host memory; undefined on the CPU
  std::int64_t values_asked_ = 0, values_arrived_ = 0, rows_asked_ = 0, rows_arrived_ = 0;
  std::unique_ptr<Preview> preview_;  // the copy under way
};

}  // namespace kindling
