#include "kindling/metrics/epoch_log.h"

#include <ATen/DeviceAccelerator.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <c10/core/Event.h>

#include <algorithm>
#include <cstring>

#include "kindling/base/error.h"
#include "kindling/base/number_text.h"
#include "kindling/device/transfer_counts.h"
#include "metrics/epoch_log_sums.h"
#include "tensors/host_number.h"

namespace kindling {
namespace {

constexpr double kWeightOfRow = -1;

void count_copy_to_host(std::int64_t bytes, bool waits) {
  TransferCounts& counts = transfer_counts();
  ++counts.device_to_host_copies;
  counts.device_to_host_bytes += bytes;
  counts.host_waits += waits ? 1 : 0;
}

// A mean and a metric of the same name share a column, whose kind may change from epoch to epoch.
EpochLog::Kind name_space(EpochLog::Kind kind) {
  return kind == EpochLog::Kind::metric ? EpochLog::Kind::mean : kind;
}

}  // namespace

struct EpochLog::Preview {
  explicit Preview(Device device) : done(device.type()) {}
  c10::Event done;
};

EpochLog::EpochLog(Device device, std::int64_t capacity)
    : device_(device),
      values_(at::empty({std::max<std::int64_t>(capacity, 1)}, at::dtype(at::kFloat).device(device))) {}

EpochLog::~EpochLog() = default;
EpochLog::EpochLog(EpochLog&&) noexcept = default;
EpochLog& EpochLog::operator=(EpochLog&&) noexcept = default;

std::size_t EpochLog::column(std::string_view name, Kind kind) {
  for (std::size_t tried = 0; tried < columns_.size(); ++tried) {
    const std::size_t index = (expected_column_ + tried) % columns_.size();
    if (name_space(columns_[index].kind) != name_space(kind) || columns_[index].name != name) continue;
    columns_[index].kind = kind;  // another model may have logged it as another kind
    expected_column_ = index + 1;
    return index;
  }
  columns_.push_back({.name = std::string(name), .kind = kind});
  expected_column_ = columns_.size();
  return columns_.size() - 1;
}

// The trainer marks columns of other kinds again on purpose.
void EpochLog::note_replaced(std::size_t column) {
  const auto& [name, kind, metric] = columns_[column];
  const bool is_of_user = kind == Kind::mean || kind == Kind::metric;
  if (is_of_user && std::find(replaced_names_.begin(), replaced_names_.end(), name) == replaced_names_.end())
    replaced_names_.push_back(name);
}

EpochLog::Mark& EpochLog::mark_of(std::size_t column, ValueOptions options) {
  if (options.weight && !(*options.weight >= 0))
    throw DataError({.place = "log(\"" + columns_.at(column).name + "\")",
                     .found = "the weight " + number_text(*options.weight),
                     .wanted = "a number, at least 0",
                     .remedy = "pass the number, or the sum of weights, that the value is a mean over"});
  auto found = std::find_if(marks_.begin(), marks_.end(), [&](const Mark& m) { return m.column == column; });
  if (found == marks_.end())
    found = marks_.insert(found, Mark{column, 0, {}, 0});
  else
    note_replaced(column);
  found->weight = options.weight.value_or(kWeightOfRow);
  return *found;
}

void EpochLog::mark(std::size_t column, const at::Tensor& value, ValueOptions options) {
  if (!value.defined() || value.numel() != 1)
    throw DataError(
        {.place = "log(\"" + columns_.at(column).name + "\")",
         .found = value.defined() ? std::to_string(value.numel()) + " elements" : "an undefined tensor",
         .wanted = "one number",
         .remedy = "log its mean()"});
  mark_of(column, options).tensor = value;
}

void EpochLog::mark(std::size_t column, double value, ValueOptions options) {
  Mark& mark = mark_of(column, options);
  mark.tensor = at::Tensor();
  mark.number = value;
}

void EpochLog::mark(std::size_t column, const WeightedLoss& value) {
  mark(column, value.loss);
  if (value.weight.defined()) weigh(column, value.weight);
}

void EpochLog::weigh(std::size_t column, const at::Tensor& weight) {
  const std::string& name = columns_.at(column).name;
  if (weight.numel() != 1)
    throw DataError({.place = "log(\"" + name + "\")",
                     .found = "a weight of " + std::to_string(weight.numel()) + " elements",
                     .wanted = "one number, at least 0",
                     .remedy = "pass the sum of the weights"});
  const auto same =
      std::ranges::find_if(marks_, [&](const Mark& mark) { return mark.tensor.is_same(weight); });
  if (same != marks_.end() && columns_[same->column].kind == Kind::internal)
    return weigh_by(column, same->column);
  const std::size_t of_weight = this->column("weight of " + name, Kind::internal);
  mark_of(of_weight, {}).tensor = weight;
  weigh_by(column, of_weight);
}

void EpochLog::weigh_by(std::size_t column, std::size_t weight_column) {
  std::ranges::find(marks_, column, &Mark::column)->weight = weight_in(weight_column);
}

at::Tensor EpochLog::marked_tensor(std::size_t column) const {
  const auto found = std::ranges::find(marks_, column, &Mark::column);
  return found == marks_.end() ? at::Tensor() : found->tensor;
}

void EpochLog::append(const RowTag& tag) {
  const at::NoGradGuard no_grad;
  if (tag.weight == 0) drop_weighted();
  if (!parts_.empty()) add_parts();
  Segment& segment = segment_for(tag);
  const auto count = static_cast<std::int64_t>(marks_.size());
  make_room(count);
  if (device_.is_cpu())
    write_on_host();
  else if (count > 0)
    write_on_device();
  ++segment.num_rows;
  num_values_ += count;
  ++num_rows_;
  steps_.push_back(tag.global_step);
  rates_.push_back(tag.lr);
  marks_.clear();
}

void EpochLog::drop_weighted() {
  parts_.clear();
  std::erase_if(marks_, [&](const Mark& mark) {
    const Kind kind = columns_[mark.column].kind;
    return kind == Kind::mean || kind == Kind::metric;
  });
}

EpochLog::Segment& EpochLog::segment_for(const RowTag& tag) {
  const auto continues = [&](const Segment& last) {
    return last.first.batch + last.num_rows == tag.batch && last.first.weight == tag.weight &&
           std::equal(last.slots.begin(), last.slots.end(), marks_.begin(), marks_.end(),
                      [](const Slot& slot, const Mark& mark) {
                        return slot.column == mark.column && slot.weight == mark.weight;
                      });
  };
  if (!segments_.empty() && continues(segments_.back())) return segments_.back();
  Segment& made = segments_.emplace_back(Segment{num_rows_, 0, num_values_, tag, {}});
  for (const Mark& mark : marks_) made.slots.push_back({mark.column, mark.weight});
  return made;
}

// Host values are read without a wait.
template <class Number>
void EpochLog::write_numbers() {
  Number* value = values_.mutable_data_ptr<Number>() + num_values_;
  for (const Mark& mark : marks_) {
    if (!mark.tensor.defined())
      *value++ = static_cast<Number>(mark.number);
    else
      *value++ = host_number<Number>(mark.tensor.is_cpu() ? mark.tensor : mark.tensor.cpu());
  }
}

void EpochLog::write_on_host() {
  if (values_.scalar_type() == at::kDouble)
    write_numbers<double>();
  else
    write_numbers<float>();
}

void EpochLog::write_on_device() {
  const std::vector<at::Tensor> row =
      values_.narrow(0, num_values_, static_cast<std::int64_t>(marks_.size())).unbind();
  std::vector<at::Tensor> values, slots;  // on the device: copied together, in one launch if possible
  for (std::size_t i = 0; i < marks_.size(); ++i) {
    const at::Tensor& value = marks_[i].tensor;
    if (!value.defined())
      row[i].fill_(marks_[i].number);  // a launch with a number, not a copy
    else if (value.is_cpu())
      row[i].fill_(host_number<double>(value));
    else {
      values.push_back(value.dim() == 0 ? value : value.view(at::IntArrayRef()));
      slots.push_back(row[i]);
    }
  }
  if (!values.empty()) at::_foreach_copy_(slots, values);
}

// For the marked values: of enough size, and of a type that rounds none of the device's.
void EpochLog::make_room(std::int64_t count) {
  at::ScalarType type = values_.scalar_type();
  for (const Mark& mark : marks_)
    if (mark.tensor.defined() && mark.tensor.scalar_type() == at::kDouble &&
        mark.tensor.device().type() == device_.type())
      type = at::kDouble;
  const std::int64_t size = values_.size(0), needed = num_values_ + count;
  if (needed <= size && type == values_.scalar_type()) return;
  at::Tensor made =
      at::empty({needed <= size ? size : std::max(needed, 2 * size)}, values_.options().dtype(type));
  made.narrow(0, 0, num_values_).copy_(values_.narrow(0, 0, num_values_));
  values_ = std::move(made);
}

// Called only while no copy into the mirror is in progress, so that it may be replaced.
void EpochLog::prepare_mirror() {
  if (mirror_.defined() && mirror_.size(0) >= values_.size(0) &&
      mirror_.scalar_type() == values_.scalar_type())
    return;
  at::Tensor made = at::empty({values_.size(0)}, at::dtype(values_.scalar_type()).pinned_memory(true));
  if (values_arrived_ > 0) made.narrow(0, 0, values_arrived_).copy_(mirror_.narrow(0, 0, values_arrived_));
  mirror_ = std::move(made);
}

void EpochLog::start_preview() {
  if (device_.is_cpu() || rows_on_host() == num_rows_ || preview_) return;
  prepare_mirror();
  const std::int64_t count = num_values_ - values_asked_;
  mirror_.narrow(0, values_asked_, count)
      .copy_(values_.narrow(0, values_asked_, count), /*non_blocking=*/true);
  preview_ = std::make_unique<Preview>(device_);
  preview_->done.record(at::accelerator::getCurrentStream(device_.index()));
  values_asked_ = num_values_;
  rows_asked_ = num_rows_;
  count_copy_to_host(count * values_.element_size(), /*waits=*/false);
}

std::int64_t EpochLog::rows_on_host() {
  if (device_.is_cpu()) return num_rows_;
  if (preview_ && preview_->done.query()) {
    preview_.reset();
    values_arrived_ = values_asked_;
    rows_arrived_ = rows_asked_;
  }
  return rows_arrived_;
}

void EpochLog::move_to_host() {
  const bool has_new_sums = std::any_of(sums_.begin(), sums_.end(), [](const Sums& sums) {
    return !sums.keeps_samples && !sums.on_host.defined();
  });
  if (rows_on_host() == num_rows_ && !has_new_sums) return;
  if (preview_) {
    preview_->done.synchronize();
    ++transfer_counts().host_waits;
    rows_on_host();
  }
  if (num_values_ > values_arrived_ || has_new_sums) move_values_and_sums();
  values_asked_ = values_arrived_ = num_values_;
  rows_asked_ = rows_arrived_ = num_rows_;
}

void EpochLog::move_values_and_sums() {
  const at::NoGradGuard no_grad;
  if (device_.is_cpu()) {
    for (Sums& sums : sums_)
      if (!sums.keeps_samples) sums.on_host = sums.on_device;
    return;
  }
  prepare_mirror();
  const std::int64_t count = num_values_ - values_arrived_;
  const at::Tensor values = values_.narrow(0, values_arrived_, count),
                   there = mirror_.narrow(0, values_arrived_, count);
  std::int64_t bytes = count * values_.element_size();
  if (std::ranges::all_of(sums_, &Sums::keeps_samples)) {
    there.copy_(values);
    return count_copy_to_host(bytes, /*waits=*/true);
  }
  std::vector<at::Tensor> parts{values.view(at::kByte)};
  for (const Sums& sums : sums_)
    if (!sums.keeps_samples) parts.push_back(sums.on_device.flatten().view(at::kByte));
  const at::Tensor together = at::cat(parts).cpu();
  count_copy_to_host(together.numel(), /*waits=*/true);
  if (count > 0)
    std::memcpy(there.mutable_data_ptr(), together.const_data_ptr(), static_cast<std::size_t>(bytes));
  for (Sums& sums : sums_) {
    if (sums.keeps_samples) continue;
    sums.on_host = at::empty(sums.on_device.sizes(), at::kDouble);
    std::memcpy(sums.on_host.mutable_data_ptr(), together.const_data_ptr<std::uint8_t>() + bytes,
                sums.on_host.nbytes());
    bytes += static_cast<std::int64_t>(sums.on_host.nbytes());
  }
}

void EpochLog::clear() {
  segments_.clear();
  steps_.clear();
  rates_.clear();
  drop_marks();
  sums_.clear();
  num_rows_ = num_values_ = 0;
  values_asked_ = values_arrived_ = rows_asked_ = rows_arrived_ = 0;
  preview_.reset();
  expected_column_ = 0;
}

}  // namespace kindling
