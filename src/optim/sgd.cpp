#include "kindling/optim/sgd.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/_fused_sgd.h>
#include <ATen/ops/index_add.h>
#include <ATen/ops/masked_fill.h>
#include <ATen/ops/ne.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>

#include "kindling/base/error.h"
#include "kindling/optim/python_optimizer.h"
#include "optim/exact_products.h"
#include "optim/state_starts.h"

namespace kindling {
namespace {

// True for bfloat16 and half, which the CPU's fused operator (up to LibTorch 2.13) does not update,
// except for a remainder that does not fill a vector register (pytorch#191763).
bool is_left_by_fused(const at::Tensor& parameter) {
  return parameter.is_cpu() && at::isReducedFloatingType(parameter.scalar_type());
}

}  // namespace

Sgd::Sgd(ParameterGroups parameters, SgdOptions options)
    : Optimizer(std::move(parameters), options.lr, options.weight_decay),
      options_(options),
      buffers_(add_state("momentum_buffer")) {
  validate(options_, "sgd");
  add_momentum(options_.momentum);
  if (options_.nesterov && (options_.momentum <= 0 || options_.dampening != 0))
    throw ConfigError({.place = "sgd",
                       .found = "nesterov without momentum or with dampening",
                       .wanted = "momentum > 0 and dampening = 0"});
}

TorchOptions Sgd::python_options() const { return python_options_of(options_); }

void Sgd::update(const Update& update) {
  const auto is_sparse = [](const at::Tensor& gradient) { return gradient.is_sparse(); };
  if (std::ranges::none_of(update.gradients, is_sparse)) return update_dense(update);
  if (momentum() != 0 || update.weight_decay != 0) require_dense(update);
  Lists dense;
  std::vector<std::size_t> places;
  for (std::size_t i = 0; i < update.active.size(); ++i) {
    if (update.gradients[i].is_sparse()) {
      update_sparse(update, i);
      continue;
    }
    places.push_back(update.active[i]);
    dense.parameters.push_back(update.parameters[i]);
    dense.gradients.push_back(update.gradients[i]);
  }
  if (places.empty()) return;
  Update rest = update;
  rest.active = places;
  rest.parameters = dense.parameters;
  rest.gradients = dense.gradients;
  update_dense(rest);
}

// Adds up repeated rows.
void Sgd::update_sparse(const Update& update, std::size_t i) {
  const at::Tensor gradient = update.gradients[i], rows = gradient._indices()[0];
  at::Tensor values = gradient._values(), parameter = update.parameters[i];
  if (update.options.grad_scale.defined()) values = values / update.options.grad_scale;
  values = update.lr.tensor.defined() ? values * update.lr.tensor.to(values.scalar_type())
                                      : values * update.lr.number;
  if (update.options.found_inf.defined()) values = values.masked_fill(update.options.found_inf.ne(0), 0);
  parameter.index_add_(0, rows, values, options_.maximize ? 1 : -1);
}

void Sgd::update_dense(const Update& update) {
  if (momentum() == 0) return apply(update, {}, false);
  if (options_.dampening != 0 && update.options.found_inf.defined() && !update.options.found_inf_stays)
    throw ConfigError({.place = "sgd",
                       .found = "dampening in a step that may be skipped",
                       .wanted = "dampening = 0 if steps may be skipped"});
  const auto has_started = [&](std::size_t i) { return buffers_[i].defined(); };
  if (!std::ranges::all_of(update.active, has_started)) return start_some(update);
  std::vector<at::Tensor> chosen;
  apply(update, active_of(buffers_, update, chosen), false);
}

// Parameters with their first gradient initialise their buffer with it; the operator accepts one kind at a
// time. A skipped step leaves zeros in the buffers, which has the same effect as long as there is no
// dampening.
void Sgd::start_some(const Update& update) {
  Lists first, later;
  for (std::size_t i = 0; i < update.active.size(); ++i) {
    at::Tensor& buffer = buffers_[update.active[i]];
    Lists& lists = buffer.defined() ? later : first;
    if (!buffer.defined()) buffer = at::zeros_like(update.parameters[i].detach());
    lists.parameters.push_back(update.parameters[i]);
    lists.gradients.push_back(update.gradients[i]);
    lists.buffers.push_back(buffer);
  }
  for (const Lists* lists : {&first, &later}) {
    if (lists->parameters.empty()) continue;
    Update part = update;
    part.parameters = lists->parameters;
    part.gradients = lists->gradients;
    apply(part, lists->buffers, lists == &first);
  }
}

void Sgd::apply(const Update& update, at::TensorList buffers, bool first) {
  if (std::ranges::any_of(update.parameters, is_left_by_fused)) return apply_singly(update, buffers, first);
  const auto apply_with = [&](const auto& lr) {
    at::_fused_sgd_(update.parameters, update.gradients, buffers, update.weight_decay, momentum(), lr,
                    options_.dampening, options_.nesterov, options_.maximize, first,
                    optional_of(update.options.grad_scale), optional_of(update.options.found_inf));
  };
  if (update.lr.tensor.defined())
    apply_with(update.lr.tensor);
  else
    apply_with(update.lr.number);
}

// Updates as torch.optim.SGD does without foreach and fused operators, in the parameters' type.
void Sgd::apply_singly(const Update& update, at::TensorList buffers, bool first) {
  const auto &scale = update.options.grad_scale, &found_inf = update.options.found_inf;
  if (found_inf.defined() && found_inf.item<double>() != 0) return;
  const double lr = update.lr.tensor.defined() ? update.lr.tensor.item<double>() : update.lr.number;
  for (std::size_t i = 0; i < update.parameters.size(); ++i) {
    const at::Tensor& parameter = update.parameters[i];
    at::Tensor direction = update.gradients[i];
    if (scale.defined()) direction.div_(scale);
    if (options_.maximize) direction = direction.neg();
    if (update.weight_decay != 0) direction = direction.add(parameter, update.weight_decay);
    if (!buffers.empty()) {
      const at::Tensor& buffer = buffers[i];
      if (first) {
        buffer.copy_(direction);
      } else {
        scale_exactly(buffer, momentum());
        buffer.add_(direction, 1 - options_.dampening);
      }
      direction = options_.nesterov ? direction.add(buffer, momentum()) : buffer;
    }
    parameter.add_(direction, -lr);
  }
}

}  // namespace kindling
