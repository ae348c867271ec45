#pragma once

#include <torch/nn/module.h>

#include <memory>
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

// The next batches begin without any; at the end of an epoch only where the options say so.
void forget_carried_states(const torch::nn::Module& model, bool at_epoch_end = false);

// Of all, as a checkpoint has them: by the names of the layers in the model. Loading throws CheckpointError
// for one that the model has no place for; what is not there is forgotten.
StateDict carried_state_dict(const torch::nn::Module& model);
void load_carried_state_dict(const torch::nn::Module& model, const StateDict& state, Device device);

}  // namespace kindling
