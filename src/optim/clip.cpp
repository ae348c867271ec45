#include "kindling/optim/clip.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/stack.h>

namespace kindling {

at::Tensor clip_grad_norm(std::span<const at::Tensor> gradients, double max_norm) {
  if (gradients.empty()) return {};
  const at::NoGradGuard no_grad;
  const at::TensorList list(gradients.data(), gradients.size());
  const at::Tensor norm = at::linalg_vector_norm(at::stack(at::_foreach_norm(list)));
  at::_foreach_mul_(list, norm.add(1e-6).reciprocal_().mul_(max_norm).clamp_max_(1.0));
  return norm;
}

}  // namespace kindling
