#include "kindling/optim/parameter_group.h"

#include <torch/nn/module.h>

#include <set>

namespace kindling {

// Tied weights are registered twice and updated once, as in Python.
ParameterGroups::ParameterGroups(const torch::nn::Module& model) : groups_(1) {
  std::set<const at::TensorImpl*> known;
  for (const auto& item : model.named_parameters()) {
    if (!item.value().defined() || !known.insert(item.value().unsafeGetTensorImpl()).second) continue;
    groups_[0].names.push_back(item.key());
    groups_[0].parameters.push_back(item.value());
  }
}

ParameterGroups::ParameterGroups(std::vector<at::Tensor> parameters) : groups_(1) {
  groups_[0].parameters = std::move(parameters);
}

ParameterGroups::ParameterGroups(std::initializer_list<at::Tensor> parameters)
    : ParameterGroups(std::vector<at::Tensor>(parameters)) {}

ParameterGroups::operator std::vector<at::Tensor>() const {
  std::vector<at::Tensor> all;
  for (const ParameterGroup& group : groups_)
    all.insert(all.end(), group.parameters.begin(), group.parameters.end());
  return all;
}

}  // namespace kindling
