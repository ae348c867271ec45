#include "kindling/optim/adagrad.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_addcmul.h>
#include <ATen/ops/_foreach_div.h>
#include <ATen/ops/_foreach_sqrt.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/index_add.h>
#include <ATen/ops/index_select.h>

#include <algorithm>

#include "kindling/optim/python_optimizer.h"

namespace kindling {

Adagrad::Adagrad(ParameterGroups parameters, AdagradOptions options)
    : ForeachOptimizer(std::move(parameters), options.lr, options.weight_decay,
                       {.maximize = options.maximize, .takes_sparse = true}),
      options_(options),
      sums_(add_state("sum", [start = options.initial_accumulator_value](const at::Tensor& parameter) {
        return at::full_like(parameter, start);
      })) {
  validate(options_, "adagrad");
}

TorchOptions Adagrad::python_options() const { return python_options_of(options_); }

void Adagrad::update_part(const Part& part) {
  const at::Tensor factor =
      options_.lr_decay == 0 ? at::Tensor() : ((part.step - 1) * options_.lr_decay + 1).reciprocal();
  const auto is_sparse = [](const at::Tensor& gradient) { return gradient.is_sparse(); };
  if (std::ranges::none_of(part.gradients, is_sparse)) return update_dense(part, factor);
  Part dense = part;
  dense.places.clear(), dense.parameters.clear(), dense.gradients.clear();
  for (std::size_t i = 0; i < part.places.size(); ++i) {
    if (part.gradients[i].is_sparse()) {
      update_sparse(part, i, factor);
      continue;
    }
    dense.places.push_back(part.places[i]);
    dense.parameters.push_back(part.parameters[i]);
    dense.gradients.push_back(part.gradients[i]);
  }
  if (!dense.places.empty()) update_dense(dense, factor);
}

void Adagrad::update_dense(const Part& part, const at::Tensor& factor) {
  const auto sums = part.of(sums_);
  at::_foreach_addcmul_(sums, part.gradients, part.gradients);
  const auto denominators = at::_foreach_sqrt(sums);
  at::_foreach_add_(denominators, options_.eps);
  part.descend(at::_foreach_div(part.gradients, denominators), factor);
}

// The rule is not linear, so repeated rows must be merged first.
void Adagrad::update_sparse(const Part& part, std::size_t i, const at::Tensor& factor) {
  const at::Tensor gradient = part.gradients[i].coalesce(), rows = gradient.indices()[0],
                   values = gradient.values();
  at::Tensor sums = sums_[part.places[i]];
  sums.index_add_(0, rows, values.square());
  at::Tensor update = values / sums.index_select(0, rows).sqrt_().add_(options_.eps);
  at::Tensor parameter = part.parameters[i];
  if (const at::Tensor rate = part.rate(factor); rate.defined())
    parameter.index_add_(0, rows, update.mul_(part.typed(rate)), -1);
  else
    parameter.index_add_(0, rows, update, -part.lr.number);
}

}  // namespace kindling
