#include "kindling/optim/radam.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_addcmul.h>
#include <ATen/ops/_foreach_lerp.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_reciprocal.h>
#include <ATen/ops/_foreach_sqrt.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>

#include "kindling/optim/python_optimizer.h"
#include "optim/exact_products.h"

namespace kindling {

RAdam::RAdam(ParameterGroups parameters, RAdamOptions options)
    : ForeachOptimizer(
          std::move(parameters), options.lr, options.weight_decay,
          {.maximize = options.maximize,
           .weight_decay = options.decoupled_weight_decay ? WeightDecay::decoupled : WeightDecay::coupled}),
      options_(options),
      exp_avgs_(add_zeros("exp_avg")),
      exp_avg_sqs_(add_zeros("exp_avg_sq")) {
  validate(options_, "radam");
  add_momentum(options_.betas[0]);
}

// rₜ·√(1−β₂ᵗ) if the rule adapts, else 0.
at::Tensor RAdam::rectification(const at::Tensor& step) const {
  const double beta2 = options_.betas[1], rho_inf = 2 / (1 - beta2) - 1;
  const at::Tensor power = at::pow(beta2, step), correction = 1 - power;
  const at::Tensor rho = rho_inf - step * power * 2 / correction;
  const at::Tensor r = ((rho - 4) * (rho - 2) * rho_inf / (rho * ((rho_inf - 4) * (rho_inf - 2)))).sqrt();
  return at::where(rho > 5, r * correction.sqrt(), at::zeros_like(r));
}

TorchOptions RAdam::python_options() const { return python_options_of(options_); }

void RAdam::update_part(const Part& part) {
  const double beta2 = options_.betas[1];
  const auto exp_avgs = part.of(exp_avgs_), exp_avg_sqs = part.of(exp_avg_sqs_);
  at::_foreach_lerp_(exp_avgs, part.gradients, 1 - momentum());
  scale_exactly(exp_avg_sqs, beta2);
  at::_foreach_addcmul_(exp_avg_sqs, part.gradients, part.gradients, 1 - beta2);

  // m·(r / (√v + eps)), or m if r is 0, which only the device knows.
  const at::Tensor r = rectification(part.step);
  const auto updates = at::_foreach_sqrt(exp_avg_sqs);
  at::_foreach_add_(updates, options_.eps);
  at::_foreach_reciprocal_(updates);
  at::_foreach_mul_(updates, part.typed(r));
  at::_foreach_add_(updates, part.typed(r == 0));
  at::_foreach_mul_(updates, exp_avgs);
  part.descend(updates, (1 - at::pow(momentum(), part.step)).reciprocal());
}

}  // namespace kindling
