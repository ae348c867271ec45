#include "kindling/optim/lion.h"

#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_sign.h>

#include "optim/exact_products.h"

namespace kindling {

Lion::Lion(ParameterGroups parameters, LionOptions options)
    : ForeachOptimizer(
          std::move(parameters), options.lr, options.weight_decay,
          {.maximize = options.maximize, .weight_decay = WeightDecay::decoupled, .counts_steps = false}),
      options_(options),
      exp_avgs_(add_zeros("exp_avg")) {
  validate(options_, "lion");
  add_momentum(options_.betas[0]);
}

void Lion::update_part(const Part& part) {
  const auto exp_avgs = part.of(exp_avgs_);
  const auto updates = at::_foreach_mul(exp_avgs, momentum());
  at::_foreach_add_(updates, part.gradients, 1 - momentum());
  part.descend(at::_foreach_sign(updates));
  scale_exactly(exp_avgs, options_.betas[1]);
  at::_foreach_add_(exp_avgs, part.gradients, 1 - options_.betas[1]);
}

}  // namespace kindling
