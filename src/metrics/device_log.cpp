#include "kindling/metrics/device_log.h"

#include <ATen/DeviceAccelerator.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <c10/core/Event.h>

#include <algorithm>
#include <cstring>

#include "kindling/base/error.h"
#include "kindling/device/transfer_counts.h"

namespace kindling {

struct DeviceLog::Preview {
  explicit Preview(Device device) : done(device.type()) {}
  c10::Event done;
};

DeviceLog::DeviceLog(Device device, std::int64_t capacity)
    : device_(device),
      values_(at::empty({std::max<std::int64_t>(capacity, 1)}, at::dtype(at::kFloat).device(device))) {}

DeviceLog::~DeviceLog() = default;
DeviceLog::DeviceLog(DeviceLog&&) noexcept = default;
DeviceLog& DeviceLog::operator=(DeviceLog&&) noexcept = default;

std::size_t DeviceLog::column(std::string_view name) {
  for (std::size_t tried = 0; tried < names_.size(); ++tried) {
    const std::size_t index = (expected_column_ + tried) % names_.size();
    if (names_[index] != name) continue;
    expected_column_ = index + 1;
    return index;
  }
  names_.emplace_back(name);
  expected_column_ = names_.size();
  return names_.size() - 1;
}

void DeviceLog::mark(std::size_t column, const at::Tensor& value) {
  if (!value.defined() || value.numel() != 1)
    throw DataError(
        {.place = "log(\"" + names_.at(column) + "\")",
         .found = value.defined() ? std::to_string(value.numel()) + " elements" : "an undefined tensor",
         .wanted = "one number",
         .remedy = "log its mean()"});
  const auto found = std::find(marked_columns_.begin(), marked_columns_.end(), column);
  if (found != marked_columns_.end()) {
    marked_values_[static_cast<std::size_t>(found - marked_columns_.begin())] = value;
    return;
  }
  marked_columns_.push_back(column);
  marked_values_.push_back(value);
}

void DeviceLog::write_row(double weight) {
  const auto count = static_cast<std::int64_t>(marked_values_.size());
  if (num_values_ + count > values_.size(0)) grow(num_values_ + count);
  if (segments_.empty() || segments_.back().weight != weight || segments_.back().columns != marked_columns_)
    segments_.push_back({num_rows_, 0, num_values_, weight, marked_columns_});
  ++segments_.back().num_rows;
  for (std::int64_t i = 0; i < count; ++i)
    write_value(num_values_ + i, marked_values_[static_cast<std::size_t>(i)]);
  num_values_ += count;
  ++num_rows_;
  marked_columns_.clear();
  marked_values_.clear();
}

void DeviceLog::write_value(std::int64_t at, const at::Tensor& value) {
  if (value.device().is_cpu()) {  // a number of the host's own: no wait
    const bool is_float = value.scalar_type() == at::kFloat;
    const float number = is_float ? *value.const_data_ptr<float>() : value.item().to<float>();
    if (device_.is_cpu())
      values_.mutable_data_ptr<float>()[at] = number;
    else
      values_.select(0, at).fill_(number);  // a launch with a number, not a copy
    return;
  }
  const at::NoGradGuard no_grad;
  values_.select(0, at).copy_(value.dim() == 0 ? value : value.view(at::IntArrayRef()));
}

void DeviceLog::grow(std::int64_t values) {
  const at::NoGradGuard no_grad;
  at::Tensor larger = at::empty({std::max(values, 2 * values_.size(0))}, values_.options());
  larger.narrow(0, 0, num_values_).copy_(values_.narrow(0, 0, num_values_));
  values_ = std::move(larger);
}

// Called only while no copy into the mirror is under way, so that it may be replaced.
void DeviceLog::prepare_mirror() {
  if (mirror_.defined() && mirror_.size(0) >= values_.size(0)) return;
  at::Tensor larger = at::empty({values_.size(0)}, at::dtype(at::kFloat).pinned_memory(true));
  if (values_arrived_ > 0)
    std::memcpy(larger.mutable_data_ptr<float>(), mirror_.const_data_ptr<float>(),
                static_cast<std::size_t>(values_arrived_) * sizeof(float));
  mirror_ = std::move(larger);
}

void DeviceLog::start_preview() {
  if (device_.is_cpu() || rows_on_host() == num_rows_ || preview_) return;
  prepare_mirror();
  const std::int64_t count = num_values_ - values_asked_;
  mirror_.narrow(0, values_asked_, count)
      .copy_(values_.narrow(0, values_asked_, count), /*non_blocking=*/true);
  preview_ = std::make_unique<Preview>(device_);
  preview_->done.record(at::accelerator::getCurrentStream(device_.index()));
  values_asked_ = num_values_;
  rows_asked_ = num_rows_;
  TransferCounts& counts = transfer_counts();
  ++counts.device_to_host_copies;
  counts.device_to_host_bytes += count * static_cast<std::int64_t>(sizeof(float));
}

std::int64_t DeviceLog::rows_on_host() {
  if (device_.is_cpu()) return num_rows_;
  if (preview_ && preview_->done.query()) {
    preview_.reset();
    values_arrived_ = values_asked_;
    rows_arrived_ = rows_asked_;
  }
  return rows_arrived_;
}

void DeviceLog::move_to_host() {
  if (device_.is_cpu() || rows_on_host() == num_rows_) return;
  TransferCounts& counts = transfer_counts();
  if (preview_) {
    preview_->done.synchronize();
    ++counts.host_waits;
    rows_on_host();
  }
  const std::int64_t count = num_values_ - values_arrived_;
  if (count > 0) {
    prepare_mirror();
    mirror_.narrow(0, values_arrived_, count).copy_(values_.narrow(0, values_arrived_, count));
    ++counts.device_to_host_copies;
    ++counts.host_waits;
    counts.device_to_host_bytes += count * static_cast<std::int64_t>(sizeof(float));
  }
  values_asked_ = values_arrived_ = num_values_;
  rows_asked_ = rows_arrived_ = num_rows_;
}

const float* DeviceLog::host_values() const {
  return (device_.is_cpu() ? values_ : mirror_).const_data_ptr<float>();
}

const DeviceLog::Segment* DeviceLog::segment_of(std::int64_t row) const {
  const auto after =
      std::upper_bound(segments_.begin(), segments_.end(), row,
                       [](std::int64_t r, const Segment& segment) { return r < segment.first_row; });
  return row < 0 || row >= num_rows_ || after == segments_.begin() ? nullptr : &*std::prev(after);
}

std::optional<double> DeviceLog::value(std::int64_t row, std::size_t column) const {
  if (!device_.is_cpu() && row >= rows_arrived_) return std::nullopt;
  const Segment* segment = segment_of(row);
  if (segment == nullptr) return std::nullopt;
  const auto& columns = segment->columns;
  const auto found = std::find(columns.begin(), columns.end(), column);
  if (found == columns.end()) return std::nullopt;
  const auto width = static_cast<std::int64_t>(columns.size());
  return host_values()[segment->first_value + (row - segment->first_row) * width + (found - columns.begin())];
}

std::vector<std::pair<std::string, double>> DeviceLog::means() const {
  std::vector<double> sums(names_.size()), weights(names_.size());
  for (const Segment& segment : segments_) {
    const float* value = segment.columns.empty() ? nullptr : host_values() + segment.first_value;
    for (std::int64_t row = 0; row < segment.num_rows; ++row) {
      for (const std::size_t column : segment.columns) {
        sums[column] += segment.weight * static_cast<double>(*value++);
        weights[column] += segment.weight;
      }
    }
  }
  std::vector<std::pair<std::string, double>> means;
  for (std::size_t i = 0; i < names_.size(); ++i)
    if (weights[i] > 0) means.emplace_back(names_[i], sums[i] / weights[i]);
  return means;
}

void DeviceLog::clear() {
  segments_.clear();
  marked_columns_.clear();
  marked_values_.clear();
  num_rows_ = num_values_ = 0;
  values_asked_ = values_arrived_ = rows_asked_ = rows_arrived_ = 0;
  preview_.reset();
  expected_column_ = 0;
}

}  // namespace kindling
