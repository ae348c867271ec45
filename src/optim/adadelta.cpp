#include "kindling/optim/adadelta.h"

#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_addcmul.h>
#include <ATen/ops/_foreach_div.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_sqrt.h>

#include "kindling/optim/python_optimizer.h"
#include "optim/exact_products.h"

namespace kindling {

Adadelta::Adadelta(ParameterGroups parameters, AdadeltaOptions options)
    : ForeachOptimizer(std::move(parameters), options.lr, options.weight_decay,
                       {.maximize = options.maximize}),
      options_(options),
      square_avgs_(add_zeros("square_avg")),
      acc_deltas_(add_zeros("acc_delta")) {
  validate(options_, "adadelta");
}

TorchOptions Adadelta::python_options() const { return python_options_of(options_); }

void Adadelta::update_part(const Part& part) {
  const auto square_avgs = part.of(square_avgs_), acc_deltas = part.of(acc_deltas_);
  scale_exactly(square_avgs, options_.rho);
  at::_foreach_addcmul_(square_avgs, part.gradients, part.gradients, 1 - options_.rho);
  const auto roots = at::_foreach_add(square_avgs, options_.eps);
  at::_foreach_sqrt_(roots);
  const auto deltas = at::_foreach_add(acc_deltas, options_.eps);
  at::_foreach_sqrt_(deltas);
  at::_foreach_div_(deltas, roots);
  at::_foreach_mul_(deltas, part.gradients);
  scale_exactly(acc_deltas, options_.rho);
  at::_foreach_addcmul_(acc_deltas, deltas, deltas, 1 - options_.rho);
  part.descend(deltas);
}

}  // namespace kindling
