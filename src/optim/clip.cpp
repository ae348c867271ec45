#include "kindling/optim/clip.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_clamp_max.h>
#include <ATen/ops/_foreach_clamp_min.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/stack.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "kindling/base/error.h"
#include "tensors/real_numbers.h"

namespace kindling {
namespace {

// For more numbers LibTorch's operators are equally fast, or faster because of their threads.
constexpr std::int64_t kMostHostNumbers = std::int64_t{1} << 20;

bool lie_on_host(std::span<const at::Tensor> gradients) {
  std::int64_t count = 0;
  for (const at::Tensor& gradient : gradients) {
    if (!gradient.is_cpu() || gradient.scalar_type() != at::kFloat || gradient.layout() != at::kStrided ||
        gradient.is_neg() || !gradient.is_non_overlapping_and_dense())
      return false;
    count += gradient.numel();
  }
  return count <= kMostHostNumbers;
}

// Sums in float32 while at most the last bit is lost, for larger counts in float64.
double sum_of_squares(const float* x, std::int64_t count) {
  constexpr std::int64_t kLanes = 16, kBlock = 32 * kLanes;
  double sum = 0;
  std::int64_t first = 0;
  for (; first + kLanes <= count; first += kBlock) {
    std::array<float, kLanes> lanes{};
    const std::int64_t end = std::min(first + kBlock, count / kLanes * kLanes);
    for (std::int64_t i = first; i < end; i += kLanes)
      for (std::int64_t lane = 0; lane < kLanes; ++lane)
        lanes[static_cast<std::size_t>(lane)] += x[i + lane] * x[i + lane];
    for (const float lane : lanes) sum += static_cast<double>(lane);
  }
  for (std::int64_t i = count / kLanes * kLanes; i < count; ++i) sum += static_cast<double>(x[i] * x[i]);
  return sum;
}

// Python's clip_grad_norm_ takes parameters; here they would be scaled themselves.
void refuse_parameters(const char* place, std::span<const at::Tensor> gradients) {
  for (std::size_t i = 0; i < gradients.size(); ++i)
    if (gradients[i].requires_grad() && gradients[i].is_leaf())
      throw Error({.place = place,
                   .found = "tensor " + std::to_string(i) + " requires a gradient, as parameters do",
                   .wanted = "gradients",
                   .remedy = "pass parameter.grad(), or Optimizer::gradients()"});
}

// Returns the gradients with complex ones as pairs of real numbers, in the same memory.
std::vector<at::Tensor> real_numbers_of(std::span<const at::Tensor> gradients) {
  std::vector<at::Tensor> numbers;
  numbers.reserve(gradients.size());
  for (const at::Tensor& gradient : gradients) numbers.push_back(numbers_in_memory(gradient));
  return numbers;
}

// Does the operators' arithmetic in one pass, which is cheaper than calling one of them.
at::Tensor clip_on_host(std::span<const at::Tensor> gradients, double max_norm) {
  double sum = 0;
  for (const at::Tensor& gradient : gradients)
    sum += sum_of_squares(gradient.const_data_ptr<float>(), gradient.numel());
  const at::Tensor norm = at::empty({}, at::kFloat);
  float& value = *norm.mutable_data_ptr<float>();
  value = static_cast<float>(std::sqrt(sum));
  const float factor = 1 / (value + 1e-6F) * static_cast<float>(max_norm);
  if (factor >= 1) return norm;
  for (const at::Tensor& gradient : gradients) {
    float* const x = gradient.mutable_data_ptr<float>();
    for (std::int64_t i = 0; i < gradient.numel(); ++i) x[i] *= factor;
    gradient.unsafeGetTensorImpl()->bump_version();
  }
  return norm;
}

}  // namespace

at::Tensor clip_grad_norm(std::span<const at::Tensor> gradients, double max_norm) {
  if (gradients.empty()) return {};
  refuse_parameters("clip_grad_norm", gradients);
  const at::NoGradGuard no_grad;
  if (lie_on_host(gradients)) return clip_on_host(gradients, max_norm);
  const std::vector<at::Tensor> list = real_numbers_of(gradients);
  if (lie_on_host(list)) return clip_on_host(list, max_norm);  // some are complex
  const at::Tensor norm = at::linalg_vector_norm(at::stack(at::_foreach_norm(list)));
  at::_foreach_mul_(list, norm.add(1e-6).reciprocal_().mul_(max_norm).clamp_max_(1.0));
  return norm;
}

void clip_grad_value(std::span<const at::Tensor> gradients, double clip_value) {
  constexpr const char* kHere = "clip_grad_value";
  refuse_parameters(kHere, gradients);
  for (std::size_t i = 0; i < gradients.size(); ++i)
    if (gradients[i].layout() != at::kStrided)
      throw Error({.place = kHere,
                   .found = "gradient " + std::to_string(i) + " is sparse",
                   .wanted = "dense gradients",
                   .remedy = "use an embedding with sparse = false, or clip by norm"});
  if (gradients.empty()) return;
  const at::NoGradGuard no_grad;
  const std::vector<at::Tensor> list = real_numbers_of(gradients);
  at::_foreach_clamp_min_(list, -clip_value);
  at::_foreach_clamp_max_(list, clip_value);
}

}  // namespace kindling
