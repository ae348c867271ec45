#include "training/gradient_norms.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_foreach_norm.h>

#include <cstddef>

#include "kindling/base/error.h"
#include "optim/distinct_parameters.h"

namespace kindling {
namespace {

void require_dense(const at::Tensor& gradient, const std::string& column) {
  if (gradient.is_sparse())
    throw ConfigError({.place = "track_grad_norm",
                       .found = "the gradient of " + column.substr(column.find('/') + 1) + " is sparse",
                       .wanted = "dense ones",
                       .remedy = "make its embedding without sparse, or leave track_grad_norm at 0"});
}

}  // namespace

void GradientNorms::mark(EpochLog& log, Optimizer& optimizer, const Module& model) {
  if (p_ == 0) return;
  const auto gradients = optimizer.gradients();
  if (gradients.empty()) return;
  const at::NoGradGuard no_grad;
  std::vector<const std::string*> names;
  const std::vector<std::string>& columns = columns_of(optimizer, model);
  for (std::size_t i = 0; i < columns.size(); ++i)
    if (optimizer.parameters()[i].grad().defined()) names.push_back(&columns[i]);
  for (std::size_t i = 0; i < names.size(); ++i) require_dense(gradients[i], *names[i]);
  const std::vector<at::Tensor> norms = at::_foreach_norm({gradients.data(), gradients.size()}, p_);
  for (std::size_t i = 0; i < names.size(); ++i) log.mark(log.column(*names[i]), norms[i]);
}

// An optimizer of a part of the model may know its parameters by other names.
const std::vector<std::string>& GradientNorms::columns_of(const Optimizer& optimizer, const Module& model) {
  std::vector<std::string>& columns = columns_[&optimizer];
  if (!columns.empty()) return columns;
  std::map<const at::TensorImpl*, std::string> names;
  for (const auto& [name, parameter] : distinct_parameters(model))
    names[parameter.unsafeGetTensorImpl()] = name;
  for (std::size_t i = 0; i < optimizer.parameters().size(); ++i) {
    const auto known = names.find(optimizer.parameters()[i].unsafeGetTensorImpl());
    columns.push_back("grad_norm/" + (known == names.end() ? optimizer.names()[i] : known->second));
  }
  return columns;
}

}  // namespace kindling
