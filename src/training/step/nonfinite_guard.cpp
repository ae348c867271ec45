#include "training/step/nonfinite_guard.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_amp_foreach_non_finite_check_and_unscale.h>
#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/any.h>
#include <ATen/ops/full.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>

#include "tensors/real_numbers.h"

namespace kindling {
namespace {

// The exponent bits of a non-finite number are all ones: adding the lowest exponent bit carries into the sign
// bit. One pass without a branch, in registers.
template <class Word, Word exponent, class Number>
bool any_not_finite(const at::Tensor& values) {
  constexpr Word lowest = exponent & (~exponent + 1);
  const Number* const value = values.const_data_ptr<Number>();
  const std::int64_t count = values.numel();  // read once; otherwise the loop is not vectorised
  Word carried = 0;
  for (std::int64_t i = 0; i < count; ++i)
    carried |= static_cast<Word>((std::bit_cast<Word>(value[i]) & exponent) + lowest);
  return (carried & static_cast<Word>(~(Word(-1) >> 1))) != 0;
}

// Checks a tensor in host memory without an operator.
bool is_not_finite(const at::Tensor& tensor) {
  const at::Tensor values = tensor.is_non_overlapping_and_dense() ? tensor : tensor.contiguous();
  switch (values.scalar_type()) {
    case at::kFloat:
      return any_not_finite<std::uint32_t, 0x7f800000U, float>(values);
    case at::kDouble:
      return any_not_finite<std::uint64_t, 0x7ff0000000000000U, double>(values);
    case at::kHalf:
      return any_not_finite<std::uint16_t, 0x7c00U, at::Half>(values);
    case at::kBFloat16:
      return any_not_finite<std::uint16_t, 0x7f80U, at::BFloat16>(values);
    default:
      return is_not_finite(values.to(at::kDouble));
  }
}

// Returns the real numbers of a gradient, which is sparse for an embedding.
at::Tensor dense_values(const at::Tensor& gradient) {
  return numbers_in_memory(gradient.is_sparse() ? gradient._values() : gradient);
}

// Checks all tensors. CUDA's operator does not support bfloat16 and treats large float64 numbers as infinite;
// for these it checks the largest number of each tensor instead.
void check_all(at::TensorList tensors, at::Tensor& found_inf, const at::Tensor& one) {
  const at::ScalarType type = tensors.front().scalar_type();
  if (type == at::kFloat || type == at::kHalf)
    return at::_amp_foreach_non_finite_check_and_unscale_(tensors, found_inf, one);
  const at::Tensor largest = at::stack(at::_foreach_norm(tensors, std::numeric_limits<double>::infinity()));
  found_inf.copy_(at::maximum(found_inf, at::any(at::isfinite(largest).logical_not()).to(at::kFloat)));
}

}  // namespace

void NonfiniteGuard::check(std::span<const at::Tensor> losses, Optimizer& optimizer, const at::Tensor& norm,
                           const GradScaler* scaler) {
  if (!is_on()) return;
  const auto values = scaler != nullptr ? std::span<const at::Tensor>()
                      : norm.defined()  ? std::span(&norm, 1)
                                        : optimizer.gradients();
  const at::Device device = optimizer.parameters().front().device();
  if (!device.is_cpu()) return check_on_device(losses, values, device);
  if (is_sticky() && found_) return;
  const auto is_bad = [](const at::Tensor& tensor) {
    return is_not_finite(dense_values(tensor.is_cpu() ? tensor : tensor.cpu()));
  };
  found_ = std::ranges::any_of(losses, is_bad) || std::ranges::any_of(values, is_bad);
}

// The operator sets found_inf and never clears it. It multiplies by one, which changes nothing; the loss is
// passed as detached data, so that autograd does not see the write. Each call accepts one type.
void NonfiniteGuard::check_on_device(std::span<const at::Tensor> losses, std::span<const at::Tensor> values,
                                     Device device) {
  const at::NoGradGuard no_grad;
  if (!found_inf_.defined()) {
    found_inf_ = at::zeros({}, at::dtype(at::kFloat).device(device));
    one_ = at::ones({}, found_inf_.options());
  } else if (!is_sticky()) {
    found_inf_.zero_();
  }
  std::vector<at::Tensor> left;
  for (const at::Tensor& loss : losses)
    left.push_back((loss.device() == device ? loss : loss.to(device)).variable_data());
  for (const at::Tensor& tensor : values) left.push_back(dense_values(tensor));
  while (!left.empty()) {
    const auto end = std::stable_partition(left.begin(), left.end(), [&](const at::Tensor& tensor) {
      return tensor.scalar_type() != left.back().scalar_type();
    });
    check_all({&*end, static_cast<std::size_t>(left.end() - end)}, found_inf_, one_);
    left.erase(end, left.end());
  }
}

// The tensors keep their addresses, because captured work reads and writes them.
void NonfiniteGuard::test_spike(SpikeDetector& detector, const std::optional<StepLoss>& loss) {
  is_spike_ = false;
  if (!detector.window().defined()) {
    if (loss) is_spike_ = detector.test(static_cast<float>(loss->number));
    return;
  }
  const at::TensorOptions scalar = at::dtype(at::kFloat).device(detector.window().device());
  if (!spike_.defined()) spike_ = at::zeros({}, scalar);
  if (loss)
    detector.test(loss->on_device.defined() ? loss->on_device : at::full({}, loss->number, scalar), spike_);
  else
    spike_.zero_();
}

void NonfiniteGuard::step_if_finite(Optimizer& optimizer, const GradScaler* scaler,
                                    const Optimizer::Closure& closure) const {
  if (found_ || is_empty_ || (is_spike_ && skips_spikes_)) return;
  const at::Tensor spike = skipped_spike();
  const bool stays = found_inf_.defined() && is_sticky() && !spike.defined();
  if (scaler != nullptr) {
    optimizer.step({.found_inf = any_of({found_inf_, spike, scaler->found_inf()})});
  } else if ((!found_inf_.defined() && !spike.defined()) || (stays && !optimizer.can_skip())) {
    // On a device the step can be reported, but its update cannot be prevented.
    if (optimizer.needs_closure())
      optimizer.step_with(closure);
    else
      optimizer.step();
  } else {
    optimizer.step({.found_inf = any_of({found_inf_, spike}), .found_inf_stays = stays});
  }
}

at::Tensor NonfiniteGuard::any_of(std::initializer_list<at::Tensor> flags) {
  at::Tensor any;
  for (const at::Tensor& flag : flags)
    if (flag.defined()) any = any.defined() ? at::maximum(any, flag) : flag;
  return any;
}

void NonfiniteGuard::mark_diverged(EpochLog& log) const {
  if (!is_on() || !is_sticky()) return;
  const std::size_t column = log.column(kDivergedColumn, EpochLog::Kind::internal);
  if (found_inf_.defined())
    log.mark(column, found_inf_);
  else
    log.mark(column, found_ ? 1. : 0.);
}

std::optional<NonfiniteGuard::Flag> NonfiniteGuard::skipped(const GradScaler* scaler) const {
  if (!may_skip(scaler)) return std::nullopt;
  const bool found_once = found_ && (scaler != nullptr || !is_sticky());
  if (is_empty_ || found_once || (is_spike_ && skips_spikes_)) return Flag{.number = 1};
  const bool counts = scaler != nullptr || !is_sticky();  // else "diverged" marks it
  return Flag{.on_device = any_of({counts ? found_inf_ : at::Tensor(), skipped_spike(),
                                   scaler != nullptr ? scaler->found_inf() : at::Tensor()})};
}

std::optional<NonfiniteGuard::Flag> NonfiniteGuard::spike() const {
  if (spike_.defined()) return Flag{.on_device = spike_};
  return is_spike_ ? std::optional(Flag{.number = 1}) : std::nullopt;
}

void NonfiniteGuard::mark_spike(EpochLog& log, const Flag& found) {
  const std::size_t column = log.column(kSpikeColumn, EpochLog::Kind::internal);
  if (found.on_device.defined() && found.number == 0)
    log.mark(column, found.on_device);
  else
    log.mark(column, found.number);
}

void NonfiniteGuard::mark_skipped(EpochLog& log, const Flag& found) {
  const std::size_t column = log.column(kSkippedColumn, EpochLog::Kind::internal);
  const bool is_on_device = found.on_device.defined() && found.number == 0;
  if (is_on_device)
    log.mark(column, found.on_device);
  else
    log.mark(column, found.number);
  if (is_on_device)
    log.commit_sums(found.on_device);
  else
    log.commit_sums(found.number == 0 ? at::Tensor() : at::scalar_tensor(found.number));
}

void NonfiniteGuard::mark_empty(EpochLog& log) {
  log.mark(log.column(kEmptyColumn, EpochLog::Kind::internal), 1.);
}

bool NonfiniteGuard::protects(const Optimizer& optimizer) {
  return optimizer.parameters().front().is_cpu() || optimizer.can_skip();
}

}  // namespace kindling
