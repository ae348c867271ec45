#include "nn/carried_states.h"

#include <string>

#include "kindling/base/error.h"

namespace kindling {
namespace {

std::vector<std::pair<std::string, std::shared_ptr<CarriedStateImpl>>> carried_states_in(
    const torch::nn::Module& model) {
  std::vector<std::pair<std::string, std::shared_ptr<CarriedStateImpl>>> found;
  for (const auto& item : model.named_modules("", /*include_self=*/false))
    if (auto state = std::dynamic_pointer_cast<CarriedStateImpl>(item.value()))
      found.emplace_back(item.key(), std::move(state));
  return found;
}

// "gru_state.training.0" → "training.0", of those that begin with `prefix`.
StateDict of_layer(const StateDict& state, const std::string& prefix) {
  StateDict own;
  for (const auto& [name, tensor] : state.tensors)
    if (name.starts_with(prefix)) own.tensors.emplace_back(name.substr(prefix.size()), tensor);
  for (const auto& [name, value] : state.metadata)
    if (name.starts_with(prefix)) own.metadata[name.substr(prefix.size())] = value;
  return own;
}

}  // namespace

CarriedStates::CarriedStates(const torch::nn::Module& model) {
  for (auto& [name, state] : carried_states_in(model)) carried_.emplace_back(state, state->carried());
}

void CarriedStates::put_back() const {
  for (const auto& [state, carried] : carried_) state->set_carried(carried);
}

CarriedStatesAside::CarriedStatesAside(const torch::nn::Module& model, bool of_training) : former_(model) {
  for (auto& [name, state] : carried_states_in(model)) {
    CarriedStateImpl::Carried without = state->carried();
    without[1] = {};
    if (of_training) without[0] = {};
    state->set_carried(std::move(without));
  }
}

void forget_carried_states(const torch::nn::Module& model, bool at_epoch_end) {
  for (const auto& [name, state] : carried_states_in(model))
    if (!at_epoch_end || state->options().reset_every_epoch) state->set_carried({});
}

StateDict carried_state_dict(const torch::nn::Module& model) {
  StateDict all;
  for (const auto& [name, state] : carried_states_in(model)) {
    StateDict own;
    state->save_state(own);
    for (auto& [key, tensor] : own.tensors) all.tensors.emplace_back(name + "." + key, std::move(tensor));
    for (auto& [key, value] : own.metadata) all.metadata[name + "." + key] = std::move(value);
  }
  return all;
}

void load_carried_state_dict(const torch::nn::Module& model, const StateDict& state, Device device) {
  std::size_t num_known = 0;
  for (const auto& [name, layer] : carried_states_in(model)) {
    const StateDict own = of_layer(state, name + ".");
    layer->load_state(own, device);
    num_known += own.tensors.size();
  }
  if (state.tensors.size() != num_known)
    throw CheckpointError({.place = "the saved model",
                           .found = "it contains hidden states such as '" + state.tensors.front().first + "'",
                           .wanted = "a model with the same CarriedStates as the saved one"});
}

}  // namespace kindling
