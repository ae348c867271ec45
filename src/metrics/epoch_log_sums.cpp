// Sums of metrics with more than one number.
#include "metrics/epoch_log_sums.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "kindling/base/error.h"

namespace kindling {

namespace {

void require_as_many(std::string_view name, std::int64_t numbers, std::int64_t before) {
  if (numbers == before) return;
  throw DataError(
      {.place = "metric '" + std::string(name) + "'",
       .found =
           "a batch has " + std::to_string(numbers) + " numbers, earlier ones had " + std::to_string(before),
       .wanted = "the same number for every batch of an epoch",
       .remedy = "for outputs with different numbers of classes use metrics with different names; give an "
                 "accuracy weights for every batch or for none"});
}

}  // namespace

bool EpochLog::has_rows_of(std::size_t column) const {
  return std::ranges::any_of(segments_, [&](const Segment& segment) {
    return std::ranges::find(segment.slots, column, &Slot::column) != segment.slots.end();
  });
}

void EpochLog::mark(std::string_view name, const std::shared_ptr<const Metric>& metric,
                    const at::Tensor& part, ValueOptions options) {
  const std::size_t index = column(name, Kind::metric);
  columns_[index].metric = metric;
  auto sums = std::find_if(sums_.begin(), sums_.end(), [&](const Sums& s) { return s.column == index; });
  const bool has_sums = sums != sums_.end();
  if (part.numel() == 1) {
    if (has_sums) require_as_many(name, 1, sums->on_device.size(1));
    return mark(index, part, options);
  }
  if (!has_sums) {
    if (has_rows_of(index)) require_as_many(name, part.numel(), 1);
    sums = sums_.insert(sums, {index, at::zeros({2, part.numel()}, part.options().dtype(at::kDouble))});
  }
  require_as_many(name, part.numel(), sums->on_device.size(1));
  const auto place = static_cast<std::size_t>(sums - sums_.begin());
  if (std::erase_if(parts_, [&](const auto& known) { return known.first == place; }) > 0)
    note_replaced(index);
  parts_.emplace_back(place, part.flatten());
}

void EpochLog::mark(std::string_view name, const std::shared_ptr<const Metric>& metric,
                    const at::Tensor& part, const at::Tensor& weight) {
  mark(name, metric, part, ValueOptions{});
  weigh(column(name, Kind::metric), weight);
}

void EpochLog::drop_marks() {
  marks_.clear();
  parts_.clear();
}

void EpochLog::add_parts() {
  const at::NoGradGuard no_grad;
  for (const auto& [place, part] : parts_) {
    Sums& sums = sums_[place];
    sums.on_device.select(0, 1).add_(part);
    sums.on_host = at::Tensor();
    if (sums.rows.empty() || sums.rows.back() != num_rows_) sums.rows.push_back(num_rows_);
  }
  parts_.clear();
}

void EpochLog::commit_sums(const at::Tensor& skipped) {
  const at::NoGradGuard no_grad;
  add_parts();
  for (Sums& sums : sums_) {
    at::Tensor since = sums.on_device.select(0, 1);
    sums.on_device.select(0, 0).add_(skipped.defined() ? since.masked_fill(skipped.ne(0), 0) : since);
    since.zero_();
    sums.on_host = at::Tensor();
  }
}

}  // namespace kindling
