#include "kindling/optim/adamax.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/_foreach_abs.h>
#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_div.h>
#include <ATen/ops/_foreach_lerp.h>
#include <ATen/ops/_foreach_maximum.h>
#include <ATen/ops/pow.h>

#include "kindling/optim/python_optimizer.h"
#include "optim/exact_products.h"

namespace kindling {

Adamax::Adamax(ParameterGroups parameters, AdamaxOptions options)
    : ForeachOptimizer(std::move(parameters), options.lr, options.weight_decay,
                       {.maximize = options.maximize}),
      options_(options),
      exp_avgs_(add_zeros("exp_avg")),
      exp_infs_(add_zeros("exp_inf")) {
  validate(options_, "adamax");
  add_momentum(options_.betas[0]);
}

TorchOptions Adamax::python_options() const { return python_options_of(options_); }

void Adamax::update_part(const Part& part) {
  const auto exp_avgs = part.of(exp_avgs_), exp_infs = part.of(exp_infs_);
  at::_foreach_lerp_(exp_avgs, part.gradients, 1 - momentum());
  scale_exactly(exp_infs, options_.betas[1]);
  const auto sizes = at::_foreach_abs(part.gradients);
  at::_foreach_add_(sizes, options_.eps);
  at::_foreach_maximum_(exp_infs, sizes);
  part.descend(at::_foreach_div(exp_avgs, exp_infs), (1 - at::pow(momentum(), part.step)).reciprocal());
}

}  // namespace kindling
