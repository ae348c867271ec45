#include "kindling/tensors/state_dict.h"

#include <torch/nn/module.h>

#include <set>

#include "kindling/base/error.h"
#include "kindling/tensors/move.h"
#include "tensors/shape_text.h"
#include "tensors/state_fit.h"

namespace kindling {

LazyLayer::~LazyLayer() = default;

namespace {

// Every way in which `state` does not fit `own`, a clause each.
std::string misfits(const StateDict& own, const StateDict& state) {
  std::string text;
  const auto add = [&](const std::string& clause) { text += (text.empty() ? "" : ", ") + clause; };
  std::set<std::string> expected;
  for (const auto& [name, tensor] : own.tensors) {
    expected.insert(name);
    const at::Tensor* value = state.find(name);
    if (value == nullptr)
      add("'" + name + "' is missing");
    else if (!tensor.defined())
      add("'" + name + "' has the shape " + shape_text(*value) + ", which its layer cannot take");
    else if (value->sizes() != tensor.sizes())
      add("'" + name + "' has the shape " + shape_text(*value) + ", the model's is " + shape_text(tensor));
  }
  for (const auto& [name, tensor] : state.tensors)
    if (!expected.contains(name)) add("'" + name + "' is not in the model");
  return text;
}

}  // namespace

std::vector<std::pair<std::string, LazyLayer*>> layers_without_shape(torch::nn::Module& module) {
  std::vector<std::pair<std::string, LazyLayer*>> layers;
  for (const auto& item : module.named_modules()) {
    auto* lazy = dynamic_cast<LazyLayer*>(item.value().get());
    if (lazy == nullptr || lazy->is_materialized()) continue;
    layers.emplace_back(item.key().empty() ? "weight" : item.key() + ".weight", lazy);
  }
  return layers;
}

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

StateDict fitted_state(torch::nn::Module& module, const StateDict& values, const std::string& place) {
  const auto lazy_layers = layers_without_shape(module);
  for (const auto& [name, layer] : lazy_layers)
    if (const at::Tensor* weight = values.find(name)) layer->materialize_like(*weight);
  StateDict own = state_dict(module);
  for (const auto& [name, layer] : lazy_layers)
    if (!layer->is_materialized()) own.tensors.emplace_back(name, at::Tensor());
  if (const std::string text = misfits(own, values); !text.empty()) {
    for (const auto& [name, layer] : lazy_layers) layer->dematerialize();
    throw CheckpointError({.place = place,
                           .found = "the values do not fit the model: " + text,
                           .wanted = "the names and shapes of the model",
                           .remedy = "nothing was loaded; check the model's options"});
  }
  return own;
}

void load_state_dict(torch::nn::Module& module, const StateDict& state, const std::string& place) {
  for (const auto& [name, tensor] : fitted_state(module, state, place).tensors)
    write_values(tensor, *state.find(name));
}

}  // namespace kindling
