#include "kindling/optim/adam.h"

#include <ATen/ops/_fused_adam_ops.h>
#include <ATen/ops/_fused_adamw_ops.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include <map>
#include <optional>

#include "kindling/base/error.h"
#include "kindling/optim/python_optimizer.h"

namespace kindling {
namespace {

std::optional<at::Tensor> optional_of(const at::Tensor& tensor) {
  return tensor.defined() ? std::optional(tensor) : std::nullopt;
}

}  // namespace

Adam::Adam(ParameterGroups parameters, AdamOptions options)
    : Adam(std::move(parameters), options, Decay::coupled) {}

Adam::Adam(ParameterGroups parameters, AdamOptions options, Decay decay)
    : Optimizer(std::move(parameters), options.lr, options.weight_decay),
      options_(options),
      decay_(decay),
      exp_avgs_(add_state("exp_avg")),
      exp_avg_sqs_(add_state("exp_avg_sq")),
      max_exp_avg_sqs_(add_state("max_exp_avg_sq")),
      steps_(add_state("step")),
      counter_of_(this->parameters().size()) {
  validate(options_, decay == Decay::coupled ? "adam" : "adamw");
}

TorchOptions Adam::python_options() const {
  TorchOptions options = python_options_of(options_);
  options["decoupled_weight_decay"] = decay_ == Decay::decoupled;
  return options;
}

// Gives parameters that meet their first gradient their state.
void Adam::start(const Update& update) {
  std::size_t counter = counters_.size();
  for (std::size_t i = 0; i < update.active.size(); ++i) {
    const std::size_t at = update.active[i];
    if (steps_[at].defined()) continue;
    const at::Tensor values = update.parameters[i].detach();
    exp_avgs_[at] = at::zeros_like(values);
    exp_avg_sqs_[at] = at::zeros_like(values);
    if (options_.amsgrad) max_exp_avg_sqs_[at] = at::zeros_like(values);
    if (counter == counters_.size())
      counters_.push_back({at::zeros({}, values.options().dtype(at::kFloat)), 0});
    steps_[at] = counters_[counter].step;
    counter_of_[at] = counter;
    ++counters_[counter].num_parameters;
  }
}

// The fused operator wants the number of the step it makes. Parameters that part from others of their counter
// get a copy of it.
void Adam::advance_counters(const Update& update) {
  for (Counter& counter : counters_) counter.num_active = 0;
  for (const std::size_t at : update.active) ++counters_[counter_of_[at]].num_active;
  const at::Tensor& found_inf = update.options.found_inf;
  const std::size_t num_known = counters_.size();
  for (std::size_t i = 0; i < num_known; ++i) {
    if (counters_[i].num_active == 0) continue;
    std::size_t advanced = i;
    if (counters_[i].num_active < counters_[i].num_parameters) {
      advanced = counters_.size();
      counters_.push_back({counters_[i].step.clone(), counters_[i].num_active});
      counters_[i].num_parameters -= counters_[i].num_active;
      for (const std::size_t at : update.active) {
        if (counter_of_[at] != i) continue;
        counter_of_[at] = advanced;
        steps_[at] = counters_[advanced].step;
      }
    }
    counters_[advanced].step.add_(1);
    if (found_inf.defined()) counters_[advanced].step.sub_(found_inf);
  }
}

void Adam::update(const Update& update) {
  start(update);
  advance_counters(update);
  std::vector<at::Tensor> chosen[4];
  const at::TensorList exp_avgs = active_of(exp_avgs_, update, chosen[0]),
                       exp_avg_sqs = active_of(exp_avg_sqs_, update, chosen[1]),
                       steps = active_of(steps_, update, chosen[2]);
  const at::TensorList maxima =
      options_.amsgrad ? active_of(max_exp_avg_sqs_, update, chosen[3]) : at::TensorList();
  const bool is_coupled = decay_ == Decay::coupled;
  const auto apply = [&](auto* fused, auto lr) {
    fused(update.parameters, update.gradients, exp_avgs, exp_avg_sqs, maxima, steps, lr, options_.betas[0],
          options_.betas[1], update.weight_decay, options_.eps, options_.amsgrad, /*maximize=*/false,
          optional_of(update.options.grad_scale), optional_of(update.options.found_inf));
  };
  if (update.lr.tensor.defined())
    apply(is_coupled ? &at::_ops::_fused_adam__tensor_lr::call : &at::_ops::_fused_adamw__tensor_lr::call,
          update.lr.tensor);
  else
    apply(is_coupled ? &at::_ops::_fused_adam_::call : &at::_ops::_fused_adamw_::call, update.lr.number);
}

// Equal counters become one again.
void Adam::state_loaded() {
  counters_.clear();
  std::map<float, std::size_t> known;
  for (std::size_t at = 0; at < steps_.size(); ++at) {
    const bool is_whole = exp_avgs_[at].defined() == steps_[at].defined() &&
                          exp_avg_sqs_[at].defined() == steps_[at].defined() &&
                          max_exp_avg_sqs_[at].defined() == (steps_[at].defined() && options_.amsgrad);
    if (!is_whole)
      throw CheckpointError({.place = "optimizer",
                             .found = "the state of '" + names()[at] + "' is not whole",
                             .wanted = "exp_avg, exp_avg_sq and step, with amsgrad max_exp_avg_sq, or none"});
    if (!steps_[at].defined()) continue;
    const auto [found, is_new] = known.emplace(steps_[at].item<float>(), counters_.size());
    if (is_new) counters_.push_back({steps_[at], 0});
    counter_of_[at] = found->second;
    ++counters_[found->second].num_parameters;
    steps_[at] = counters_[found->second].step;
  }
}

AdamW::AdamW(ParameterGroups parameters, AdamWOptions options)
    : Adam(std::move(parameters),
           {.lr = options.lr,
            .betas = options.betas,
            .eps = options.eps,
            .weight_decay = options.weight_decay,
            .amsgrad = options.amsgrad},
           Decay::decoupled) {}

}  // namespace kindling
