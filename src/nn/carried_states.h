#pragma once

#include <torch/nn/module.h>

#include <memory>
#include <utility>
#include <vector>

#include "kindling/nn/carried_state.h"

namespace kindling {

// The hidden states of all CarriedStates in a model at one moment.
class CarriedStates {
 public:
  explicit CarriedStates(const torch::nn::Module& model);
  void put_back() const;

 private:
  std::vector<std::pair<std::shared_ptr<CarriedStateImpl>, CarriedStateImpl::Carried>> carried_;
};

// For its lifetime, evaluations start without a state, and training continues with its own state afterwards;
// with `of_training`, training starts without one too.
class CarriedStatesAside {
 public:
  explicit CarriedStatesAside(const torch::nn::Module& model, bool of_training = false);
  ~CarriedStatesAside() { former_.put_back(); }
  CarriedStatesAside(const CarriedStatesAside&) = delete;
  CarriedStatesAside& operator=(const CarriedStatesAside&) = delete;

 private:
  CarriedStates former_;
};

// Resets all states; at the end of an epoch, only those whose options say so.
void forget_carried_states(const torch::nn::Module& model, bool at_epoch_end = false);

// The states of all layers as in checkpoints: by the layers' names in the model. Loading throws
// CheckpointError for a state without a layer; layers without a saved state are reset.
StateDict carried_state_dict(const torch::nn::Module& model);
void load_carried_state_dict(const torch::nn::Module& model, const StateDict& state, Device device);

}  // namespace kindling
