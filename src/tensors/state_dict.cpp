#include "kindling/tensors/state_dict.h"

#include <torch/nn/module.h>

#include "kindling/tensors/move.h"
#include "tensors/state_fit.h"

namespace kindling {

LazyLayer::~LazyLayer() = default;

const at::Tensor* StateDict::find(const std::string& name) const {
  for (const auto& [key, tensor] : tensors)
    if (key == name) return &tensor;
  return nullptr;
}

StateDict copy_to(const StateDict& state, Device device) {
  StateDict copy{.tensors = {}, .metadata = state.metadata};
  for (const auto& [name, tensor] : state.tensors)
    copy.tensors.emplace_back(name, copy_to(tensor.detach(), device));
  return copy;
}

StateDict state_dict(const torch::nn::Module& module) {
  StateDict state;
  for (const auto& item : module.named_parameters())
    if (item.value().defined()) state.tensors.emplace_back(item.key(), item.value());
  for (const auto& item : module.named_buffers())
    if (item.value().defined()) state.tensors.emplace_back(item.key(), item.value());
  return state;
}

LoadReport load_state_dict(torch::nn::Module& module, const StateDict& state, const std::string& place,
                           const LoadOptions& options) {
  StateFit fit = fit_state(module, state, options, place, state.tensors.size());
  for (const auto& target : fit.targets) write_values(target.tensor, state.tensors[target.value].second);
  return std::move(fit.report);
}

}  // namespace kindling
