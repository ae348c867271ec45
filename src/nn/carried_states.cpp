#include "nn/carried_states.h"

namespace kindling {

std::vector<std::pair<std::string, std::shared_ptr<CarriedStateImpl>>> carried_states_in(
    const torch::nn::Module& model) {
  std::vector<std::pair<std::string, std::shared_ptr<CarriedStateImpl>>> found;
  for (const auto& item : model.named_modules("", /*include_self=*/false))
    if (auto state = std::dynamic_pointer_cast<CarriedStateImpl>(item.value()))
      found.emplace_back(item.key(), std::move(state));
  return found;
}

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

}  // namespace kindling
