// Sums of metrics with more than one number.
#include "metrics/epoch_log_sums.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <limits>

#include "kindling/base/error.h"
#include "tensors/shape_text.h"

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

void require_same_row(std::string_view name, const at::Tensor& part, const at::Tensor& kept) {
  if (part.is_floating_point() && part.dim() == kept.dim() && part.dim() > 0 &&
      part.sizes().slice(1) == kept.sizes().slice(1))
    return;
  throw DataError({.place = "metric '" + std::string(name) + "'",
                   .found = "a batch has samples " + type_text(part) + ", earlier ones had rows of " +
                            shape_text(kept.sizes().slice(1)),
                   .wanted = "the same row for every batch of an epoch",
                   .remedy =
                       "for outputs with different numbers of classes use metrics with different names; "
                       "give weights for every batch or for none"});
}

}  // namespace

// A buffer that doubles, so that the number of copies does not depend on the number of batches.
void EpochLog::Sums::add_samples(const at::Tensor& part) {
  const bool is_wider = part.scalar_type() == at::kDouble && on_device.scalar_type() != at::kDouble;
  const std::int64_t needed = num_samples + part.size(0);
  if (needed > on_device.size(0) || is_wider) {
    std::vector<std::int64_t> sizes = on_device.sizes().vec();
    if (needed > sizes.front()) sizes.front() = std::max(needed, 2 * sizes.front());
    at::Tensor larger =
        at::empty(sizes, on_device.options().dtype(is_wider ? at::kDouble : on_device.scalar_type()));
    larger.narrow(0, 0, num_samples).copy_(samples());
    on_device = std::move(larger);
  }
  on_device.narrow(0, num_samples, part.size(0)).copy_(part);
  num_samples = needed;
}

NamedSamples EpochLog::samples() const {
  NamedSamples all;
  for (const Sums& sums : sums_)
    if (sums.keeps_samples) all.emplace_back(columns_[sums.column].name, sums.samples());
  return all;
}

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
  const bool has_sums = sums != sums_.end(), keeps_samples = metric->keeps_samples();
  if (part.numel() == 1 && !keeps_samples) {
    if (has_sums) require_as_many(name, 1, sums->on_device.size(1));
    return mark(index, part, options);
  }
  if (!has_sums) {
    if (has_rows_of(index)) require_as_many(name, part.numel(), 1);
    sums = sums_.insert(sums, {.column = index, .on_device = empty_sums(*metric, part)});
    sums->keeps_samples = keeps_samples;
  }
  if (keeps_samples)
    require_same_row(name, part, sums->on_device);
  else
    require_as_many(name, part.numel(), sums->on_device.size(1));
  const auto place = static_cast<std::size_t>(sums - sums_.begin());
  if (std::erase_if(parts_, [&](const auto& known) { return known.first == place; }) > 0)
    note_replaced(index);
  parts_.emplace_back(place, keeps_samples ? part : part.flatten());
}

at::Tensor EpochLog::empty_sums(const Metric& metric, const at::Tensor& part) const {
  if (metric.keeps_samples()) return at::empty_like(part);
  return at::zeros({2, part.numel()}, part.options().dtype(at::kDouble));
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
    if (sums.keeps_samples)
      sums.add_samples(part);
    else
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
    if (sums.keeps_samples) {
      if (skipped.defined() && sums.num_samples > sums.num_committed)
        sums.on_device.narrow(0, sums.num_committed, sums.num_samples - sums.num_committed)
            .masked_fill_(skipped.ne(0), std::numeric_limits<double>::quiet_NaN());
      sums.num_committed = sums.num_samples;
      continue;
    }
    at::Tensor since = sums.on_device.select(0, 1);
    sums.on_device.select(0, 0).add_(skipped.defined() ? since.masked_fill(skipped.ne(0), 0) : since);
    since.zero_();
    sums.on_host = at::Tensor();
  }
}

}  // namespace kindling
