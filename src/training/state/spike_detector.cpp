#include "training/state/spike_detector.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/nan_to_num.h>
#include <ATen/ops/sort.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "kindling/base/error.h"
#include "tensors/shape_text.h"

namespace kindling {
namespace {

constexpr float kEmptySlot = std::numeric_limits<float>::infinity();
// A difference below this fraction of the median is rounding, or the noise of a loss that does not change any
// more. Powers of two are exact, so the order of the products does not matter.
constexpr float kLeastSpread = 0x1p-10F;

}  // namespace

SpikeDetector::SpikeDetector(Device device, const SpikeOptions& options)
    : size_(static_cast<std::size_t>(options.window)),
      fewest_(std::max<std::size_t>(8, size_ / 2)),
      factor_(static_cast<float>(options.factor)) {
  if (device.is_cpu()) {
    ring_.assign(size_, kEmptySlot);
    sorted_.reserve(size_ + 1);
    return;
  }
  const at::NoGradGuard no_grad;
  const at::TensorOptions numbers = at::dtype(at::kFloat).device(device);
  window_ = at::full({options.window}, kEmptySlot, numbers);
  middles_ = at::arange(-1, options.window, numbers.dtype(at::kLong)).clamp_min_(0);
  middles_.floor_divide_(2);
  factors_ = at::full({options.window + 1}, factor_, numbers);
  factors_.narrow(0, 0, static_cast<std::int64_t>(fewest_)).fill_(std::numeric_limits<float>::infinity());
}

bool SpikeDetector::test(float loss) {
  const bool found = is_spike(loss);
  add(loss);
  return found;
}

// No product is added to anything, so that the compiler cannot fuse the two into one rounding.
bool SpikeDetector::is_spike(float loss) const {
  if (sorted_.size() < fewest_) return false;
  const float median = sorted_[(sorted_.size() - 1) / 2], distance = loss - median;
  if (!(distance > 0 && distance < kEmptySlot)) return false;
  const float spread = std::max(2 * median_distance(median), kLeastSpread * std::abs(median));
  return spread > 0 && distance > factor_ * spread;
}

// Returns the lower median of the distances of all losses from their median. Those of the losses below it
// rise to the left, the others to the right: a binary search finds how many of the smallest come from the
// left.
float SpikeDetector::median_distance(float median) const {
  const std::size_t middle = (sorted_.size() - 1) / 2;
  const auto on_left = [&](std::size_t i) { return median - sorted_[middle - 1 - i]; };
  const auto on_right = [&](std::size_t i) { return sorted_[middle + i] - median; };
  std::size_t fewest = 0, most = middle;
  while (fewest < most) {
    const std::size_t tried = (fewest + most) / 2;
    if (on_left(tried) < on_right(middle - tried))
      fewest = tried + 1;
    else
      most = tried;
  }
  const float last_on_right = on_right(middle - fewest);
  return fewest == 0 ? last_on_right : std::max(on_left(fewest - 1), last_on_right);
}

// Replaces the oldest loss. Moves only the sorted losses between the two.
void SpikeDetector::add(float loss) {
  if (!std::isfinite(loss)) loss = kEmptySlot;
  const float oldest = ring_[next_];
  ring_[next_] = loss;
  next_ = next_ + 1 == size_ ? 0 : next_ + 1;
  if (oldest == kEmptySlot) {
    if (loss != kEmptySlot) sorted_.insert(std::upper_bound(sorted_.begin(), sorted_.end(), loss), loss);
    return;
  }
  const auto place = std::lower_bound(sorted_.begin(), sorted_.end(), oldest);
  if (loss == kEmptySlot) {
    sorted_.erase(place);
  } else if (loss < oldest) {
    const auto to = std::upper_bound(sorted_.begin(), place, loss);
    std::move_backward(to, place, place + 1);
    *to = loss;
  } else {
    const auto to = std::lower_bound(place + 1, sorted_.end(), loss);
    *std::move(place + 1, to, place) = loss;
  }
}

void SpikeDetector::test(const at::Tensor& loss, const at::Tensor& found) {
  const at::NoGradGuard no_grad;
  const at::Tensor number = loss.detach().reshape({1}).to(window_.device(), at::kFloat);
  const at::Tensor count = window_.lt(kEmptySlot).sum(0, /*keepdim=*/true);
  const at::Tensor middle = middles_.index_select(0, count);
  const auto median_of = [&](const at::Tensor& sorted) { return sorted.index_select(0, middle); };
  const at::Tensor sorted = std::get<0>(window_.sort()), median = median_of(sorted);
  at::Tensor spread = median_of(std::get<0>(sorted.sub(median).abs_().sort())).mul_(2);
  spread = at::maximum(spread, median.abs().mul_(kLeastSpread));
  spread.masked_fill_(spread.eq(0), kEmptySlot);
  const at::Tensor distance = number.sub(median), limit = spread.mul_(factors_.index_select(0, count));
  found.copy_(distance.gt(limit).logical_and_(distance.lt(kEmptySlot)).view(at::IntArrayRef()));
  const at::Tensor added = at::nan_to_num(number, kEmptySlot, kEmptySlot, kEmptySlot);
  window_.copy_(at::cat({window_.narrow(0, 1, window_.size(0) - 1), added}));
}

at::Tensor SpikeDetector::losses() const {
  if (window_.defined()) return window_;
  at::Tensor losses = at::empty({static_cast<std::int64_t>(size_)}, at::kFloat);
  std::rotate_copy(ring_.begin(), ring_.begin() + static_cast<std::ptrdiff_t>(next_), ring_.end(),
                   losses.mutable_data_ptr<float>());
  return losses;
}

void SpikeDetector::load(const at::Tensor& losses) {
  if (losses.dim() != 1 || losses.scalar_type() != at::kFloat)
    throw CheckpointError({.place = "the losses of the spike test",
                           .found = type_text(losses),
                           .wanted = "float32 [n]",
                           .remedy = "the file has been changed; resume from another checkpoint"});
  const at::NoGradGuard no_grad;
  const std::int64_t count = std::min(losses.size(0), static_cast<std::int64_t>(size_));
  const at::Tensor latest = losses.narrow(0, losses.size(0) - count, count);
  if (window_.defined()) {
    window_.fill_(kEmptySlot);
    window_.narrow(0, window_.size(0) - count, count).copy_(latest);
    return;
  }
  ring_.assign(size_, kEmptySlot);
  sorted_.clear();
  next_ = 0;
  const at::Tensor numbers = latest.cpu().contiguous();
  for (std::int64_t i = 0; i < count; ++i) add(numbers.const_data_ptr<float>()[i]);
}

}  // namespace kindling
