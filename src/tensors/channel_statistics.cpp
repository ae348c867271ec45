#include "tensors/channel_statistics.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/full.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/isnan.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/minimum.h>
#include <ATen/ops/where.h>

#include <limits>

namespace kindling {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

at::Tensor numbers(std::int64_t count, double value) { return at::full({count}, value, at::kDouble); }

}  // namespace

ChannelStatistics::ChannelStatistics(std::int64_t num_channels, bool skips_nan)
    : num_channels_(num_channels),
      skips_nan_(skips_nan),
      count_(numbers(num_channels, 0)),
      mean_(numbers(num_channels, 0)),
      squares_(numbers(num_channels, 0)),
      smallest_(numbers(num_channels, kInfinity)),
      largest_(numbers(num_channels, -kInfinity)) {}

void ChannelStatistics::add(const at::Tensor& samples) {
  const at::NoGradGuard no_grad;
  at::Tensor values = samples.to(at::kCPU, at::kDouble);
  values = num_channels_ == 1 ? values.reshape({1, -1}) : values.transpose(0, 1).reshape({num_channels_, -1});
  const at::Tensor is_missing = skips_nan_ ? at::isnan(values) : at::Tensor();
  const auto with = [&](double number) {
    return skips_nan_ ? values.masked_fill(is_missing, number) : values;
  };
  at::Tensor count = numbers(num_channels_, static_cast<double>(values.size(1)));
  if (skips_nan_) count.sub_(is_missing.sum(1));
  const at::Tensor mean = with(0).sum(1).div_(count.clamp_min(1));
  at::Tensor differences = values.sub(mean.unsqueeze(1));
  if (skips_nan_) differences.masked_fill_(is_missing, 0);
  const at::Tensor squares = differences.square_().sum(1);

  const at::Tensor total = count_ + count, difference = mean - mean_, part = count / total.clamp_min(1);
  squares_.add_(squares).add_(difference.square().mul_(count_).mul_(part));
  mean_.add_(difference.mul(part));
  smallest_ = at::minimum(smallest_, with(kInfinity).amin(1));
  largest_ = at::maximum(largest_, with(-kInfinity).amax(1));
  count_ = total;
}

at::Tensor ChannelStatistics::mean() const {
  return mean_.masked_fill(count_.eq(0), std::numeric_limits<double>::quiet_NaN());
}

at::Tensor ChannelStatistics::deviation() const {
  return at::where(largest_.eq(smallest_), 1., (squares_ / count_).sqrt());
}

std::optional<std::int64_t> ChannelStatistics::wrong_channel() const {
  const at::Tensor is_wrong = at::isfinite(squares_).logical_not().logical_or(count_.eq(0));
  if (!is_wrong.any().item<bool>()) return std::nullopt;
  return is_wrong.to(at::kByte).argmax().item<std::int64_t>();
}

}  // namespace kindling
