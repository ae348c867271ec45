#include "kindling/optim/nadam.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_addcmul.h>
#include <ATen/ops/_foreach_div.h>
#include <ATen/ops/_foreach_lerp.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_sqrt.h>
#include <ATen/ops/pow.h>

#include "kindling/optim/python_optimizer.h"
#include "optim/exact_products.h"

namespace kindling {

NAdam::NAdam(ParameterGroups parameters, NAdamOptions options)
    : ForeachOptimizer(
          std::move(parameters), options.lr, options.weight_decay,
          {.maximize = options.maximize,
           .weight_decay = options.decoupled_weight_decay ? WeightDecay::decoupled : WeightDecay::coupled}),
      options_(options),
      exp_avgs_(add_zeros("exp_avg")),
      exp_avg_sqs_(add_zeros("exp_avg_sq")),
      mu_products_(add_scalar_state("mu_product", 1)) {
  validate(options_, "nadam");
  add_momentum(options_.betas[0]);
}

at::Tensor NAdam::mu(const at::Tensor& step) const {
  return (1 - at::pow(0.96, step * options_.momentum_decay) * 0.5) * momentum();
}

TorchOptions NAdam::python_options() const { return python_options_of(options_); }

void NAdam::update_part(const Part& part) {
  const double beta2 = options_.betas[1];
  const auto exp_avgs = part.of(exp_avgs_), exp_avg_sqs = part.of(exp_avg_sqs_);
  at::_foreach_lerp_(exp_avgs, part.gradients, 1 - momentum());
  scale_exactly(exp_avg_sqs, beta2);
  at::_foreach_addcmul_(exp_avg_sqs, part.gradients, part.gradients, 1 - beta2);
  const auto denominators = at::_foreach_div(exp_avg_sqs, part.typed(1 - at::pow(beta2, part.step)));
  at::_foreach_sqrt_(denominators);
  at::_foreach_add_(denominators, options_.eps);

  const at::Tensor now = mu(part.step), next = mu(part.step + 1);
  at::Tensor product = mu_products_[part.places.front()];  // of all of this part
  product.mul_(now.to(product.scalar_type()));             // rounds as Python's
  const at::Tensor so_far = product.to(at::kDouble);
  const auto updates = at::_foreach_mul(part.gradients, part.typed((1 - now) / (1 - so_far)));
  at::_foreach_add_(updates, at::_foreach_mul(exp_avgs, part.typed(next / (1 - so_far * next))));
  at::_foreach_div_(updates, denominators);
  part.descend(updates);
}

}  // namespace kindling
