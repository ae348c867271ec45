#include "kindling/optim/sgd.h"

#include <ATen/ops/_fused_sgd.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>

#include "kindling/base/error.h"
#include "kindling/optim/python_optimizer.h"

namespace kindling {

Sgd::Sgd(ParameterGroups parameters, SgdOptions options)
    : Optimizer(std::move(parameters), options.lr, options.weight_decay),
      options_(options),
      buffers_(add_state("momentum_buffer")) {
  validate(options_, "sgd");
  if (options_.nesterov && (options_.momentum <= 0 || options_.dampening != 0))
    throw ConfigError({.place = "sgd",
                       .found = "nesterov without momentum or with dampening",
                       .wanted = "momentum > 0 and dampening = 0"});
}

TorchOptions Sgd::python_options() const { return python_options_of(options_); }

void Sgd::update(const Update& update) {
  if (options_.momentum == 0) return apply(update, {}, false);
  if (options_.dampening != 0 && update.options.found_inf.defined() && !update.options.found_inf_stays)
    throw ConfigError({.place = "sgd",
                       .found = "dampening in a step that may be left out",
                       .wanted = "dampening = 0 where steps are skipped"});
  const auto has_started = [&](std::size_t i) { return buffers_[i].defined(); };
  if (!std::ranges::all_of(update.active, has_started)) return start_some(update);
  std::vector<at::Tensor> chosen;
  apply(update, active_of(buffers_, update, chosen), false);
}

// Those that meet their first gradient start their buffer with it; the operator takes one kind at a time. A
// step that is left out leaves the zeros, which begin in the same way as long as there is no dampening.
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
  const auto optional_of = [](const at::Tensor& tensor) {
    return tensor.defined() ? std::optional(tensor) : std::nullopt;
  };
  const auto apply_with = [&](const auto& lr) {
    at::_fused_sgd_(update.parameters, update.gradients, buffers, update.weight_decay, options_.momentum, lr,
                    options_.dampening, options_.nesterov, /*maximize=*/false, first,
                    optional_of(update.options.grad_scale), optional_of(update.options.found_inf));
  };
  if (update.lr.tensor.defined())
    apply_with(update.lr.tensor);
  else
    apply_with(update.lr.number);
}

}  // namespace kindling
