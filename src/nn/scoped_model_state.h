#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "kindling/nn/module.h"
#include "kindling/tensors/lazy.h"
#include "nn/carried_states.h"
#include "tensors/tensor_snapshot.h"

namespace kindling {

// Copies the state of a model, and restores it when it is destroyed: always the mode of each layer and the
// hidden states, and what the extent adds.
class ScopedModelState {
 public:
  // Each one includes the previous ones.
  enum class Extent {
    modes,
    buffers,    // and the values of buffers
    values,     // and the values of parameters
    everything  // and gradients, requires_grad, and layers without parameters; a shared_ptr owns the model
  };
  enum class HiddenStates { of_evaluation, all };  // that are set aside meanwhile

  // `model` must outlive it. Tensors stay the same objects over the same memory, even if the model is moved
  // or converted meanwhile.
  explicit ScopedModelState(torch::nn::Module& model, Extent extent = Extent::modes,
                            HiddenStates aside = HiddenStates::all);
  ~ScopedModelState();
  ScopedModelState(const ScopedModelState&) = delete;
  ScopedModelState& operator=(const ScopedModelState&) = delete;

  // Restores the values of parameters and buffers now, and again later.
  void restore_values() const;

 private:
  struct KeptTensor {
    at::Tensor tensor;
    at::Tensor data;  // the original memory, even if the model is moved or converted
    at::Tensor grad;
    bool requires_grad;
  };
  struct LazyOptions {
    LazyLayer* layer;
    std::set<std::string> frozen;
    at::ScalarType type;
    bool channels_last;
  };
  void keep(const std::vector<at::Tensor>& tensors);
  void restore_gradients();
  void restore_modes();

  torch::nn::Module& model_;
  const Extent extent_;
  const bool was_training_;
  std::vector<std::pair<std::shared_ptr<torch::nn::Module>, bool>> layers_;
  const CarriedStatesAside hidden_states_;
  std::vector<KeptTensor> tensors_;
  std::unique_ptr<const TensorSnapshot> values_;
  std::vector<LazyOptions> lazy_;
};

// Sets another trainer for a model during its lifetime; with an empty view, values are not logged.
class ScopedTrainer {
 public:
  ScopedTrainer(Module& model, TrainerView view) : model_(model), former_(model.trainer()) {
    model_.set_trainer(std::move(view));
  }
  ~ScopedTrainer() { model_.set_trainer(std::move(former_)); }
  ScopedTrainer(const ScopedTrainer&) = delete;
  ScopedTrainer& operator=(const ScopedTrainer&) = delete;

 private:
  Module& model_;
  TrainerView former_;
};

}  // namespace kindling
