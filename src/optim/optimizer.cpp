#include "kindling/optim/optimizer.h"

#include <ATen/core/grad_mode.h>

#include "kindling/base/error.h"

namespace kindling {

Optimizer::Optimizer(std::vector<at::Tensor> parameters, double lr)
    : parameters_(std::move(parameters)), lr_(lr) {
  if (parameters_.empty())
    throw ConfigError({.place = "optimizer",
                       .found = "the model has no parameters to train",
                       .wanted = "at least one parameter with requires_grad"});
}

Optimizer::~Optimizer() = default;

std::span<const at::Tensor> Optimizer::gradients() {
  gradients_.clear();
  active_.clear();
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const at::Tensor& gradient = parameters_[i].grad();
    if (!gradient.defined()) continue;
    gradients_.push_back(gradient);
    active_.push_back(i);
  }
  return gradients_;
}

void Optimizer::step() {
  gradients();
  if (!active_.empty()) {
    const at::NoGradGuard no_grad;
    update(active_, gradients_);
  }
  gradients_.clear();
}

void Optimizer::zero_grad() {
  gradients_.clear();
  for (at::Tensor& parameter : parameters_) parameter.mutable_grad() = at::Tensor();
}

}  // namespace kindling
