#include "kindling/optim/adam.h"

#include <ATen/ops/_fused_adam_ops.h>
#include <ATen/ops/_fused_adamw_ops.h>

#include "kindling/optim/python_optimizer.h"
#include "optim/state_starts.h"

namespace kindling {

Adam::Adam(ParameterGroups parameters, AdamOptions options) : Adam(std::move(parameters), options, "adam") {}

Adam::Adam(ParameterGroups parameters, AdamOptions options, const char* name)
    : Optimizer(std::move(parameters), options.lr, options.weight_decay),
      options_(options),
      exp_avgs_(add_state("exp_avg", zeros_of_its_shape)),
      exp_avg_sqs_(add_state("exp_avg_sq", zeros_of_its_shape)),
      steps_(add_state("step", scalar_start(0))),
      max_exp_avg_sqs_(options.amsgrad ? &add_state("max_exp_avg_sq", zeros_of_its_shape) : nullptr),
      counters_({&steps_}) {
  validate(options_, name);
  add_momentum(options_.betas[0]);
}

TorchOptions Adam::python_options() const { return python_options_of(options_); }

void Adam::update(const Update& update) {
  require_dense(update);
  // the operator needs the number of the current step
  counters_.advance(update.active, update.options.found_inf);
  std::vector<at::Tensor> chosen[4];
  const at::TensorList exp_avgs = active_of(exp_avgs_, update, chosen[0]),
                       exp_avg_sqs = active_of(exp_avg_sqs_, update, chosen[1]),
                       steps = active_of(steps_, update, chosen[2]);
  const at::TensorList maxima =
      options_.amsgrad ? active_of(*max_exp_avg_sqs_, update, chosen[3]) : at::TensorList();
  const auto apply = [&](auto* fused, auto lr) {
    fused(update.parameters, update.gradients, exp_avgs, exp_avg_sqs, maxima, steps, lr, momentum(),
          options_.betas[1], update.weight_decay, options_.eps, options_.amsgrad, options_.maximize,
          optional_of(update.options.grad_scale), optional_of(update.options.found_inf));
  };
  const bool is_coupled = !options_.decoupled_weight_decay;
  if (update.lr.tensor.defined())
    apply(is_coupled ? &at::_ops::_fused_adam__tensor_lr::call : &at::_ops::_fused_adamw__tensor_lr::call,
          update.lr.tensor);
  else
    apply(is_coupled ? &at::_ops::_fused_adam_::call : &at::_ops::_fused_adamw_::call, update.lr.number);
}

AdamW::AdamW(ParameterGroups parameters, AdamWOptions options)
    : Adam(std::move(parameters),
           {.lr = options.lr,
            .betas = options.betas,
            .eps = options.eps,
            .weight_decay = options.weight_decay,
            .amsgrad = options.amsgrad,
            .maximize = options.maximize,
            .decoupled_weight_decay = true},
           "adamw") {}

}  // namespace kindling
