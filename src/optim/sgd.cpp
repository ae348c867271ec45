#include "kindling/optim/sgd.h"

#include <ATen/ops/_fused_sgd.h>
#include <ATen/ops/empty_like.h>

#include "kindling/base/error.h"

namespace kindling {

Sgd::Sgd(std::vector<at::Tensor> parameters, SgdOptions options)
    : Optimizer(std::move(parameters), options.lr), options_(options) {
  validate(options_, "sgd");
  if (options_.nesterov && (options_.momentum <= 0 || options_.dampening != 0))
    throw ConfigError({.place = "sgd",
                       .found = "nesterov without momentum or with dampening",
                       .wanted = "momentum > 0 and dampening = 0"});
  if (options_.momentum != 0) buffers_.resize(this->parameters().size());
}

void Sgd::update(std::span<const std::size_t> active, at::TensorList gradients) {
  const bool all = active.size() == parameters().size();
  if (all && buffers_.empty())
    apply(parameters(), gradients, {}, false);
  else if (all && num_started_ == parameters().size())
    apply(parameters(), gradients, buffers_, false);
  else
    update_part(active, gradients);
}

// Those that meet their first gradient start their buffer with it; the operator takes one kind at a time.
void Sgd::update_part(std::span<const std::size_t> active, at::TensorList gradients) {
  Lists first, later;
  for (std::size_t i = 0; i < active.size(); ++i) {
    const at::Tensor& parameter = parameters()[active[i]];
    const bool starts = !buffers_.empty() && !buffers_[active[i]].defined();
    if (starts) {
      buffers_[active[i]] = at::empty_like(parameter.detach());
      ++num_started_;
    }
    Lists& lists = starts ? first : later;
    lists.parameters.push_back(parameter);
    lists.gradients.push_back(gradients[i]);
    if (!buffers_.empty()) lists.buffers.push_back(buffers_[active[i]]);
  }
  if (!first.parameters.empty()) apply(first.parameters, first.gradients, first.buffers, true);
  if (!later.parameters.empty()) apply(later.parameters, later.gradients, later.buffers, false);
}

void Sgd::apply(at::TensorList parameters, at::TensorList gradients, at::TensorList buffers, bool first) {
  at::_fused_sgd_(parameters, gradients, buffers, options_.weight_decay, options_.momentum, lr(),
                  options_.dampening, options_.nesterov, /*maximize=*/false, first);
}

}  // namespace kindling
