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
// value, or one float64 from the first value of this type on. The rows of a step are consecutive. A batch
// marks its values; append() writes them into fixed slots and copies these, in one operation, to a position
// in the log that is kept on the device. Nothing waits; move_to_host() fetches everything in one copy. On the
// CPU the log is plain memory.
class KINDLING_API EpochLog {
 public:
  // `capacity`: values that fit before the memory grows (it doubles, on the device, without a wait).
  explicit EpochLog(Device device, std::int64_t capacity = 4096);
  ~EpochLog();
  EpochLog(EpochLog&&) noexcept;
  EpochLog& operator=(EpochLog&&) noexcept;

  // How a column's values are used: as means over the epoch, as values of single steps only, as a metric, or
  // as internal marks of rows, which no mean and no record shows. Checkpoints store these numbers.
  enum class Kind { mean, step_only, metric, internal };
  struct Column {
    std::string name;
    Kind kind = Kind::mean;
    std::shared_ptr<const Metric> metric{};
  };
  // Returns the number of a name, assigned at its first use. Fast if rows have the same order of names.
  std::size_t column(std::string_view name, Kind kind = Kind::mean);
  // Returns the number only if it has been assigned.
  std::optional<std::size_t> find_column(std::string_view name, Kind kind) const;
  const std::vector<Column>& columns() const noexcept { return columns_; }

  // Adds a value (one element, any dtype, device or host) to the current row; append() reads its tensor. A
  // second value for a column replaces the first. Throws DataError for more than one element.
  void mark(std::size_t column, const at::Tensor& value, ValueOptions options = {});
  void mark(std::size_t column, double value, ValueOptions options = {});
  void mark(std::string_view name, const at::Tensor& value, ValueOptions options = {}) {
    mark(column(name), value, options);
  }
  // Adds a mean with its weight, which may be on the device, too: it takes a column of Kind::internal. Rows
  // of weight 0 do not count, whatever their value.
  void mark(std::size_t column, const WeightedLoss& value);
  // Adds a batch's contribution to a metric: a single number as a value of the row, weighted by what it adds
  // to compute()'s num_samples; a larger tensor to sums on the device; rows of samples to those that are kept
  // there. Throws DataError if the shape differs from earlier ones.
  void mark(std::string_view name, const std::shared_ptr<const Metric>& metric, const at::Tensor& part,
            ValueOptions options = {});
  // The same for a single number, whose weight may be on the device.
  void mark(std::string_view name, const std::shared_ptr<const Metric>& metric, const at::Tensor& part,
            const at::Tensor& weight);
  // Takes the value of another marked column (Kind::internal) as the weight of a marked one.
  void weigh_by(std::size_t column, std::size_t weight_column);
  // Returns the tensor that is marked in the current row; undefined: none is.
  at::Tensor marked_tensor(std::size_t column) const;
  // Keeps what has been added to sums since the last call, or reverts it if `skipped`, a number on the
  // device, is not 0. Keeps it if `skipped` is undefined.
  void commit_sums(const at::Tensor& skipped);
  [[deprecated("use commit_sums")]] void settle(const at::Tensor& skipped) { commit_sums(skipped); }
  // The names of means and metrics that were marked again in the same row, which replaced their first value.
  const std::vector<std::string>& replaced_names() const noexcept { return replaced_names_; }
  bool has_marks() const noexcept { return !marks_.empty() || !parts_.empty(); }
  // Discards the marked values: their batch will not become a row.
  void drop_marks();
  void drop_weighted();  // the same for means and metrics only: the batch has no weight
  [[deprecated("use drop_weighted")]] void drop_weighed() { drop_weighted(); }
  // Ends the row with the marked values. A row without weight keeps only marks and values of its step.
  void append(const RowTag& tag);
  std::int64_t num_rows() const noexcept { return num_rows_; }
  RowTag tag(std::int64_t row) const;
  std::int64_t step(std::int64_t row) const { return steps_[static_cast<std::size_t>(row)]; }  // of its tag

  // Starts an asynchronous copy of the rows that have not been requested yet, unless one is in progress.
  void start_preview();
  // Returns how many rows have reached the host, without waiting.
  std::int64_t rows_on_host();
  // Copies everything to the host: one copy, one wait (neither on the CPU).
  void move_to_host();

  // Returns a value of rows on the host, or nothing if they have none. For several rows it is the weighted
  // mean, for a step_only or internal column the last value, and for a metric its value over these rows only.
  std::optional<double> value(std::int64_t row, std::size_t column, std::int64_t num_rows = 1) const;
  std::int64_t rows_of_step(std::int64_t row) const;  // from this one on, in the same step
  std::set<std::int64_t> marked_steps(std::optional<std::size_t> column) const;  // steps whose value is not 0
  // Returns one number per column that has any, in double precision: the weighted mean Σ weight·value / Σ
  // weight over all rows, or the metric. Steps with a value other than 0 in the column `left_out` have no
  // weight; commit_sums() reverts their contribution to sums. Requires move_to_host(). Metrics that keep
  // samples are computed on the device now, and copied with another wait.
  NamedValues means(std::optional<std::size_t> left_out = {}) const { return means(totals(left_out)); }
  std::vector<NamedTotal> totals(std::optional<std::size_t> left_out = {}) const {
    return totals(left_out, samples());
  }
  // The same with the samples of all ranks. A metric whose samples are undefined gets no sums.
  std::vector<NamedTotal> totals(std::optional<std::size_t> left_out, const NamedSamples& samples) const;
  NamedValues means(const std::vector<NamedTotal>& totals) const;

  // Returns the rows of the metrics that keep samples, by the name of the column, on the device.
  NamedSamples samples() const;

  void clear();  // drops the rows, keeps names and memory

  // Save and load all rows, tags and marked values. Saving moves the log to the host; loading replaces its
  // contents and looks up metrics by their columns' names. Throw CheckpointError.
  using MetricOfName = std::function<std::shared_ptr<const Metric>(const std::string& name)>;
  void save(StateDict& state, const std::string& prefix);
  void load(const StateDict& state, const std::string& prefix, const MetricOfName& metric_of);

  Device device() const noexcept { return device_; }

 private:
  friend class LogDigest;
  friend class MarkedRow;
  struct Mark {
    std::size_t column;
    double weight;  // -1: the row's; below: the value of another column of the row, see weight_in()
    at::Tensor tensor;
    double number;  // if there is no tensor
  };
  struct Slot {
    std::size_t column;
    double weight;  // as of a mark
  };
  static double weight_in(std::size_t column) noexcept { return -2 - static_cast<double>(column); }
  static bool is_in_column(double weight) noexcept { return weight <= -2; }
  static std::size_t column_of(double weight) noexcept { return static_cast<std::size_t>(-2 - weight); }
  // Consecutive rows with the same slots and weight.
  struct Segment {
    std::int64_t first_row, num_rows, first_value;
    RowTag first;
    std::vector<Slot> slots;
  };
  struct Sums;  // of a metric with more than one number
  struct Preview;
  void add_parts();
  bool has_rows_of(std::size_t column) const;
  at::Tensor empty_sums(const Metric& metric, const at::Tensor& part) const;
  Mark& mark_of(std::size_t column, ValueOptions options);
  void weigh(std::size_t column, const at::Tensor& weight);  // a marked value
  void require_weight(double weight, const std::string& prefix) const;
  double weight_of(const Segment& segment, std::size_t slot, std::int64_t first_value) const;
  void note_replaced(std::size_t column);
  Segment& segment_for(const RowTag& tag);
  void make_room(std::int64_t count);
  template <class Number>
  void write_numbers();
  void write_on_host();
  void write_on_device();
  void prepare_mirror();
  void move_values_and_sums();
  void load_marks(const StateDict& state, const std::string& prefix);
  void load_rows(const StateDict& state, const std::string& prefix);
  void load_sums(const StateDict& state, const std::string& prefix, std::size_t column, bool keeps_samples);
  void add_sums_of(const NamedSamples& samples, std::vector<NamedTotal>& to) const;
  NamedTotal total_of(const Sums& sums, const std::set<std::int64_t>& no_steps) const;
  const Segment* segment_of(std::int64_t row) const;
  const at::Tensor& values_on_host() const;
  double host_value(std::int64_t index) const;
  Device device_;
  std::vector<Column> columns_;
  std::size_t expected_column_ = 0;  // where the next look-up starts
  std::vector<Mark> marks_;
  std::vector<std::string> replaced_names_;
  std::vector<Segment> segments_;
  std::vector<std::int64_t> steps_;  // of each row
  std::vector<double> rates_;
  std::vector<Sums> sums_;
  std::vector<std::pair<std::size_t, at::Tensor>> parts_;  // of the current row, by index in sums_
  std::int64_t num_rows_ = 0, num_values_ = 0;
  at::Tensor values_;  // float32 or float64 [capacity] on the device
  at::Tensor mirror_;  // the values in pinned host memory; undefined on the CPU
  std::int64_t values_asked_ = 0, values_arrived_ = 0, rows_asked_ = 0, rows_arrived_ = 0;
  std::unique_ptr<Preview> preview_;  // the copy in progress
};

}  // namespace kindling
