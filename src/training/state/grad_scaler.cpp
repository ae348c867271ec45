#include "training/state/grad_scaler.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_amp_foreach_non_finite_check_and_unscale.h>
#include <ATen/ops/_amp_update_scale.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "kindling/base/error.h"
#include "kindling/tensors/move.h"
#include "tensors/real_numbers.h"

namespace kindling {
namespace {

constexpr double kInitScale = 65536, kGrowthFactor = 2, kBackoffFactor = 0.5;
constexpr std::int64_t kGrowthInterval = 2000;
constexpr const char *kScale = "scale", *kGrowthTracker = "growth_tracker";

}  // namespace

GradScaler::GradScaler(Device device)
    : scale_(at::full({}, kInitScale, at::dtype(at::kFloat).device(device))),
      growth_tracker_(at::zeros({}, at::dtype(at::kInt).device(device))),
      found_inf_(at::zeros({}, at::dtype(at::kFloat).device(device))) {}

at::Tensor GradScaler::seed(const at::Tensor& loss, double factor) const {
  const at::NoGradGuard no_grad;
  const at::Tensor seed = factor != 1 ? scale_ * factor : scale_;
  return seed.to(loss.scalar_type()).view(loss.sizes());
}

at::Tensor GradScaler::seed(const at::Tensor& loss, const at::Tensor& factor) const {
  const at::NoGradGuard no_grad;
  return (scale_ * factor).to(loss.scalar_type()).view(loss.sizes());
}

// The operator sets found_inf and never clears it; each call accepts one type.
void GradScaler::unscale(Optimizer& optimizer) {
  const at::NoGradGuard no_grad;
  found_inf_.zero_();
  const at::Tensor inverse = scale_.reciprocal();  // exact: a power of two
  std::vector<at::Tensor> left;
  for (const at::Tensor& gradient : optimizer.gradients())
    left.push_back(numbers_in_memory(gradient.is_sparse() ? gradient._values() : gradient));
  while (!left.empty()) {
    const auto end = std::stable_partition(left.begin(), left.end(), [&](const at::Tensor& gradient) {
      return gradient.scalar_type() != left.back().scalar_type();
    });
    at::_amp_foreach_non_finite_check_and_unscale_({&*end, static_cast<std::size_t>(left.end() - end)},
                                                   found_inf_, inverse);
    left.erase(end, left.end());
  }
}

void GradScaler::adjust(const at::Tensor& found_inf) {
  const at::NoGradGuard no_grad;
  at::_amp_update_scale_(scale_, growth_tracker_, found_inf, kGrowthFactor, kBackoffFactor, kGrowthInterval);
  scale_.clamp_min_(kLowestScale);
}

void GradScaler::save(StateDict& state) const {
  state.tensors.emplace_back(kScale, scale_);
  state.tensors.emplace_back(kGrowthTracker, growth_tracker_);
}

void GradScaler::load(const StateDict& state) {
  const at::Tensor *scale = state.find(kScale), *tracker = state.find(kGrowthTracker);
  if (scale == nullptr || tracker == nullptr || scale->numel() != 1 || tracker->numel() != 1)
    throw CheckpointError({.place = "gradient scale",
                           .found = "it is not in the checkpoint",
                           .wanted = "a run with precision = \"16-mixed\""});
  write_values(scale_, *scale);
  scale_.clamp_min_(kLowestScale);  // former versions had no limit
  write_values(growth_tracker_, *tracker);
}

}  // namespace kindling
