#include "kindling/optim/foreach_optimizer.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/_foreach_add.h>
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_neg.h>
#include <ATen/ops/_foreach_sub.h>

#include <algorithm>
#include <numeric>

#include "optim/exact_products.h"
#include "optim/state_starts.h"

namespace kindling {

ForeachOptimizer::ForeachOptimizer(ParameterGroups parameters, double lr, double weight_decay,
                                   UpdateStyle style)
    : Optimizer(std::move(parameters), lr, weight_decay), style_(style) {
  if (style.counts_steps) add_scalar_state("step", 0);
}

std::vector<at::Tensor>& ForeachOptimizer::add_scalar_state(std::string name, double value) {
  scalars_.push_back(&add_state(std::move(name), scalar_start(value)));
  counters_.emplace(scalars_);
  return *scalars_.back();
}

std::vector<at::Tensor>& ForeachOptimizer::add_zeros(std::string name) {
  return add_state(std::move(name), zeros_of_its_shape);
}

void ForeachOptimizer::state_loaded() {
  if (counters_) counters_->share_equal();
}

void ForeachOptimizer::update(const Update& update) {
  if (!style_.takes_sparse) require_dense(update);
  if (counters_) {
    for (const auto& indices : counters_->advance(update.active)) update_part(part_of(update, indices));
  } else {
    std::vector<std::size_t> all(update.active.size());
    std::iota(all.begin(), all.end(), std::size_t{0});
    update_part(part_of(update, all));
  }
}

ForeachOptimizer::Part ForeachOptimizer::part_of(const Update& update,
                                                 const std::vector<std::size_t>& indices) const {
  Part part{.places = {},
            .parameters = {},
            .gradients = {},
            .step = {},
            .lr = update.lr,
            .weight_decay = update.weight_decay};
  for (const std::size_t i : indices) {
    part.places.push_back(update.active[i]);
    part.parameters.push_back(update.parameters[i]);
    part.gradients.push_back(update.gradients[i]);
  }
  if (counters_) part.step = (*scalars_.front())[part.places.front()].to(at::kDouble);
  if (style_.maximize) part.gradients = at::_foreach_neg(part.gradients);
  if (update.weight_decay == 0) return part;
  if (style_.weight_decay == WeightDecay::decoupled) {
    part.decay();
  } else if (style_.weight_decay == WeightDecay::coupled) {
    require_dense(update);
    part.gradients = at::_foreach_add(part.gradients, part.parameters, update.weight_decay);
  }
  return part;
}

std::vector<at::Tensor> ForeachOptimizer::Part::of(const std::vector<at::Tensor>& state) const {
  std::vector<at::Tensor> chosen;
  chosen.reserve(places.size());
  for (const std::size_t at : places) chosen.push_back(state[at]);
  return chosen;
}

at::Tensor ForeachOptimizer::Part::typed(const at::Tensor& scalar) const {
  return scalar.to(parameters.front().scalar_type());
}

at::Tensor ForeachOptimizer::Part::rate(const at::Tensor& factor) const {
  if (!lr.tensor.defined()) return factor.defined() ? factor * lr.number : at::Tensor();
  const at::Tensor rate = lr.tensor.to(at::kDouble);
  return factor.defined() ? rate * factor : rate;
}

void ForeachOptimizer::Part::descend(at::TensorList updates, const at::Tensor& factor) const {
  const at::Tensor tensor = rate(factor);
  if (!tensor.defined()) return at::_foreach_add_(parameters, updates, -lr.number);
  at::_foreach_mul_(updates, typed(tensor));
  at::_foreach_sub_(parameters, updates);
}

void ForeachOptimizer::Part::decay() const {
  if (!lr.tensor.defined()) return scale_exactly(parameters, 1 - lr.number * weight_decay);
  const at::Tensor factor = 1 - lr.tensor.to(at::kDouble) * weight_decay;
  if (std::ranges::none_of(parameters, is_of_16_bits)) return at::_foreach_mul_(parameters, typed(factor));
  for (const at::Tensor& parameter : parameters) parameter.copy_(parameter.to(at::kDouble).mul_(factor));
}

}  // namespace kindling
