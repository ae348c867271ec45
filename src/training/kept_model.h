#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "device/random_state.h"
#include "kindling/metrics/progress_board.h"
#include "kindling/nn/module.h"
#include "kindling/tensors/lazy.h"
#include "nn/carried_states.h"

namespace kindling {

// While it lives, a model may be trained on `device`; then the model is what it was, and so is the random
// state: values, gradients, types and devices of all parameters and buffers (which stay the same tensors over
// the same memory), layers that had no parameters, modes, hidden states, board and trainer.
class KeptModel {
 public:
  // `model` outlives it.
  KeptModel(Module& model, Device device);
  ~KeptModel();
  KeptModel(const KeptModel&) = delete;
  KeptModel& operator=(const KeptModel&) = delete;

 private:
  struct KeptTensor {
    at::Tensor tensor;
    at::Tensor data;  // the same memory, which a move of the model or another precision leaves
    at::Tensor values, grad;
    bool requires_grad;
  };
  struct LazyOptions {
    LazyLayer* layer;
    std::set<std::string> frozen;
    at::ScalarType type;
    bool channels_last;
  };
  void keep(const at::Tensor& tensor);

  Module& model_;
  std::vector<KeptTensor> tensors_;
  std::vector<LazyOptions> lazy_;
  std::vector<std::pair<std::shared_ptr<torch::nn::Module>, bool>> modes_;
  CarriedStates carried_;
  TrainerView view_;
  ProgressBoard board_;
  RandomStateGuard random_state_;
};

}  // namespace kindling
