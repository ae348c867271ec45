#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kindling/base/export.h"
#include "kindling/device/device.h"

namespace kindling {

// The log of an epoch, in the memory of the device that computes it: one row per step, one float32 per value.
// Writing a row is a device-to-device copy per value and never waits; move_to_host() brings everything over
// in one copy. On the CPU the log is plain memory.
class KINDLING_API DeviceLog {
 public:
  // `capacity`: values that fit before the memory grows (it doubles, on the device, without a wait).
  explicit DeviceLog(Device device, std::int64_t capacity = 4096);
  ~DeviceLog();
  DeviceLog(DeviceLog&&) noexcept;
  DeviceLog& operator=(DeviceLog&&) noexcept;

  // The number of a name, given at its first use. Fast when names come in the same order in every row.
  std::size_t column(std::string_view name);
  const std::vector<std::string>& names() const noexcept { return names_; }

  // Puts a value (one element, any dtype, device or host) into the row that is being made; its tensor is read
  // by write_row(). A second value for a column replaces the first. Throws DataError for more than one
  // element.
  void mark(std::size_t column, const at::Tensor& value);
  void mark(std::string_view name, const at::Tensor& value) { mark(column(name), value); }

  // Ends the row: writes the marked values, which count `weight` times in means (the samples of the batch).
  // Does not wait.
  void write_row(double weight);
  std::int64_t num_rows() const noexcept { return num_rows_; }

  // Starts an asynchronous copy of the rows that have not been asked for yet, unless one is still under way.
  void start_preview();
  // How many rows have reached the host, asked without waiting.
  std::int64_t rows_on_host();
  // Brings all rows to the host: one copy, one wait (none of either on the CPU).
  void move_to_host();

  // Of rows on the host; nothing where the row has no such value.
  std::optional<double> value(std::int64_t row, std::size_t column) const;
  // The weighted mean of each column over all rows, Σ weight·value / Σ weight in double precision; columns
  // without a value are left out. Requires move_to_host().
  std::vector<std::pair<std::string, double>> means() const;

  // Forgets the rows, keeps names and memory.
  void clear();

  Device device() const noexcept { return device_; }

 private:
  // Rows in sequence with the same columns and weight.
  struct Segment {
    std::int64_t first_row, num_rows, first_value;
    double weight;
    std::vector<std::size_t> columns;
  };
  struct Preview;

  void grow(std::int64_t values);
  void write_value(std::int64_t at, const at::Tensor& value);
  void prepare_mirror();
  const Segment* segment_of(std::int64_t row) const;
  const float* host_values() const;

  Device device_;
  std::vector<std::string> names_;
  std::size_t expected_column_ = 0;  // where the next look-up starts
  std::vector<std::size_t> marked_columns_;
  std::vector<at::Tensor> marked_values_;
  std::vector<Segment> segments_;
  std::int64_t num_rows_ = 0, num_values_ = 0;
  at::Tensor values_;  // float32 [capacity] on the device
  at::Tensor mirror_;  // the same in pinned host memory; undefined on the CPU
  std::int64_t values_asked_ = 0, values_arrived_ = 0, rows_asked_ = 0, rows_arrived_ = 0;
  std::unique_ptr<Preview> preview_;  // the copy under way
};

}  // namespace kindling
