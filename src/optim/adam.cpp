#include "kindling/optim/adam.h"

#include <ATen/ops/_fused_adam_ops.h>
#include <ATen/ops/_fused_adamw_ops.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>

namespace kindling {

Adam::Adam(std::vector<at::Tensor> parameters, AdamOptions options)
    : Adam(std::move(parameters), options, Decay::coupled) {}

Adam::Adam(std::vector<at::Tensor> parameters, AdamOptions options, Decay decay)
    : Optimizer(std::move(parameters), options.lr), options_(options), decay_(decay) {
  validate(options_, decay == Decay::coupled ? "adam" : "adamw");
  make_state();
}

void Adam::make_state() {
  state_.parameters = Optimizer::parameters();
  const at::Tensor step =
      at::zeros({}, state_.parameters.front().options().dtype(at::kFloat).requires_grad(false));
  for (const at::Tensor& parameter : state_.parameters) {
    const at::Tensor values = parameter.detach();
    state_.exp_avgs.push_back(at::zeros_like(values));
    state_.exp_avg_sqs.push_back(at::zeros_like(values));
    if (options_.amsgrad) state_.max_exp_avg_sqs.push_back(at::zeros_like(values));
    state_.steps.push_back(step);
  }
}

Adam::State Adam::State::part(std::span<const std::size_t> active) const {
  const auto chosen = [&](const std::vector<at::Tensor>& all) {
    std::vector<at::Tensor> some;
    if (!all.empty())
      for (const std::size_t i : active) some.push_back(all[i]);
    return some;
  };
  return {chosen(parameters), chosen(exp_avgs), chosen(exp_avg_sqs), chosen(max_exp_avg_sqs), chosen(steps)};
}

// Counters that stay behind part from the shared one first.
void Adam::advance_steps(std::span<const std::size_t> active) {
  auto& steps = state_.steps;
  if (active.size() < steps.size()) {
    std::size_t next = 0;
    for (std::size_t i = 0; i < steps.size(); ++i) {
      if (next < active.size() && active[next] == i)
        ++next;
      else
        steps[i] = steps[i].clone();
    }
  }
  std::vector<const at::TensorImpl*> advanced;
  for (const std::size_t i : active) {
    const auto* counter = steps[i].unsafeGetTensorImpl();
    if (std::find(advanced.begin(), advanced.end(), counter) != advanced.end()) continue;
    advanced.push_back(counter);
    steps[i].add_(1);  // the fused operator wants the number of the step it makes
  }
}

void Adam::update(std::span<const std::size_t> active, at::TensorList gradients) {
  advance_steps(active);
  if (active.size() == state_.parameters.size())
    apply(state_, gradients);
  else
    apply(state_.part(active), gradients);
}

void Adam::apply(const State& state, at::TensorList gradients) {
  auto* const fused =
      decay_ == Decay::coupled ? &at::_ops::_fused_adam_::call : &at::_ops::_fused_adamw_::call;
  fused(state.parameters, gradients, state.exp_avgs, state.exp_avg_sqs, state.max_exp_avg_sqs, state.steps,
        lr(), options_.betas[0], options_.betas[1], options_.weight_decay, options_.eps, options_.amsgrad,
        /*maximize=*/false, /*grad_scale=*/{}, /*found_inf=*/{});
}

AdamW::AdamW(std::vector<at::Tensor> parameters, AdamWOptions options)
    : Adam(std::move(parameters),
           {.lr = options.lr,
            .betas = options.betas,
            .eps = options.eps,
            .weight_decay = options.weight_decay,
            .amsgrad = options.amsgrad},
           Decay::decoupled) {}

}  // namespace kindling
