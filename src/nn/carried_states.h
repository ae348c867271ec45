#pragma once

#include <torch/nn/module.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kindling/nn/carried_state.h"

namespace kindling {

// What all CarriedStates in a model carry at a moment.
class CarriedStates {
 public:
  explicit CarriedStates(const torch::nn::Module& model);
  void put_back() const;

 private:
  std::vector<std::pair<std::shared_ptr<CarriedStateImpl>, CarriedStateImpl::Carried>> carried_;
};

// While it lives, evaluations find no state, and training goes on with its own afterwards; with
// `of_training` training finds none either.
class CarriedStatesAside {
 public:
  explicit CarriedStatesAside(const torch::nn::Module& model, bool of_training = false);
  ~CarriedStatesAside() { former_.put_back(); }
  CarriedStatesAside(const CarriedStatesAside&) = delete;
  CarriedStatesAside& operator=(const CarriedStatesAside&) = delete;

 private:
  CarriedStates former_;
};

// With their names in the model.
std::vector<std::pair<std::string, std::shared_ptr<CarriedStateImpl>>> carried_states_in(
    const torch::nn::Module& model);

}  // namespace kindling
