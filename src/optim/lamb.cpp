#include "kindling/optim/lamb.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_addcmul.h>
#include <ATen/ops/_foreach_div.h>
#include <ATen/ops/_foreach_lerp.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/_foreach_sqrt.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/where.h>

#include "optim/exact_products.h"

namespace kindling {

Lamb::Lamb(ParameterGroups parameters, LambOptions options)
    : ForeachOptimizer(std::move(parameters), options.lr, options.weight_decay,
                       {.maximize = options.maximize, .weight_decay = WeightDecay::by_rule}),
      options_(options),
      exp_avgs_(add_zeros("exp_avg")),
      exp_avg_sqs_(add_zeros("exp_avg_sq")) {
  validate(options_, "lamb");
  add_momentum(options_.betas[0]);
}

void Lamb::update_part(const Part& part) {
  const double beta2 = options_.betas[1];
  const auto exp_avgs = part.of(exp_avgs_), exp_avg_sqs = part.of(exp_avg_sqs_);
  at::_foreach_lerp_(exp_avgs, part.gradients, 1 - momentum());
  scale_exactly(exp_avg_sqs, beta2);
  at::_foreach_addcmul_(exp_avg_sqs, part.gradients, part.gradients, 1 - beta2);

  const auto denominators = at::_foreach_div(exp_avg_sqs, part.typed(1 - at::pow(beta2, part.step)));
  at::_foreach_sqrt_(denominators);
  at::_foreach_add_(denominators, options_.eps);
  const auto updates = at::_foreach_div(exp_avgs, part.typed(1 - at::pow(momentum(), part.step)));
  at::_foreach_div_(updates, denominators);
  if (part.weight_decay != 0) at::_foreach_add_(updates, part.parameters, part.weight_decay);

  const at::Tensor lengths = at::stack(at::_foreach_norm(part.parameters)),
                   of_updates = at::stack(at::_foreach_norm(updates));
  const at::Tensor ratios =
      at::where((lengths > 0).logical_and_(of_updates > 0), lengths / of_updates, at::ones_like(lengths));
  at::_foreach_mul_(updates, ratios.unbind());
  part.descend(updates);
}

}  // namespace kindling
