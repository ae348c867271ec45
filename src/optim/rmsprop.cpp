#include "kindling/optim/rmsprop.h"

#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_addcdiv.h>
#include <ATen/ops/_foreach_addcmul.h>
#include <ATen/ops/_foreach_div.h>
#include <ATen/ops/_foreach_lerp.h>
#include <ATen/ops/_foreach_sqrt.h>

#include "kindling/optim/python_optimizer.h"
#include "optim/exact_products.h"
#include "optim/foreach_copies.h"
#include "optim/state_starts.h"

namespace kindling {

RmsProp::RmsProp(ParameterGroups parameters, RmsPropOptions options)
    : ForeachOptimizer(std::move(parameters), options.lr, options.weight_decay,
                       {.maximize = options.maximize}),
      options_(options),
      square_avgs_(add_zeros("square_avg")),
      momentum_buffers_(add_state("momentum_buffer",
                                  [this](const at::Tensor& parameter) {
                                    return momentum() > 0 ? zeros_of_its_shape(parameter) : at::Tensor();
                                  })),
      grad_avgs_(options.centered ? &add_zeros("grad_avg") : nullptr) {
  validate(options_, "rmsprop");
  add_momentum(options_.momentum);
}

TorchOptions RmsProp::python_options() const { return python_options_of(options_); }

void RmsProp::update_part(const Part& part) {
  const auto square_avgs = part.of(square_avgs_);
  scale_exactly(square_avgs, options_.alpha);
  at::_foreach_addcmul_(square_avgs, part.gradients, part.gradients, 1 - options_.alpha);
  std::vector<at::Tensor> denominators;
  if (options_.centered) {
    const auto grad_avgs = part.of(*grad_avgs_);
    at::_foreach_lerp_(grad_avgs, part.gradients, 1 - options_.alpha);
    denominators = at::_foreach_addcmul(square_avgs, grad_avgs, grad_avgs, -1);
    at::_foreach_sqrt_(denominators);
  } else {
    denominators = at::_foreach_sqrt(square_avgs);
  }
  at::_foreach_add_(denominators, options_.eps);
  if (momentum() == 0) return part.descend(at::_foreach_div(part.gradients, denominators));
  const auto buffers = part.of(momentum_buffers_);
  scale_exactly(buffers, momentum());
  at::_foreach_addcdiv_(buffers, part.gradients, denominators);
  part.descend(part.lr.tensor.defined() ? foreach_copies(buffers) : buffers);
}

}  // namespace kindling
