#pragma once

#include <ATen/core/grad_mode.h>
#include <torch/nn/module.h>

#include <utility>
#include <vector>

#include "device/random_state.h"
#include "kindling/nn/evaluation_guard.h"
#include "nn/carried_states.h"
#include "nn/without_checkpoints.h"

namespace kindling {

// While it lives a model is in evaluation mode without gradients, or in training mode with them, and nothing
// that is done with it lasts: afterwards parameters, buffers, gradients' graphs, modes, carried states and
// LibTorch's random numbers are what they were.
class ModelAsItWas {
 public:
  ModelAsItWas(torch::nn::Module& model, bool train);
  ~ModelAsItWas() { put_back(); }
  ModelAsItWas(const ModelAsItWas&) = delete;
  ModelAsItWas& operator=(const ModelAsItWas&) = delete;

  // Parameters and buffers have their values again.
  void put_back() const;

 private:
  RandomStateGuard random_;
  EvaluationGuard mode_;
  CarriedStatesAside states_;
  WithoutCheckpoints plainly_;
  at::AutoGradMode gradients_;
  std::vector<std::pair<at::Tensor, at::Tensor>> values_;  // tensors and what is in them
};

}  // namespace kindling
