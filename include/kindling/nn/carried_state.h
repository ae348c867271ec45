#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/cloneable.h>
#include <torch/nn/pimpl.h>

#include <array>
#include <cstdint>
#include <optional>
#include <tuple>
#include <vector>

#include "kindling/base/export.h"
#include "kindling/tensors/state_dict.h"

namespace kindling {

struct CarriedStateOptions {
  std::int64_t batch_dim =
      1;  // of the state: [layers, batch, hidden], as LibTorch's recurrent layers have it
  std::int64_t reset_every_n_batches = 0;  // windows of a sequence; 0: not by batches
  bool reset_every_epoch = true;
};

// The hidden state that a recurrent model carries from batch to batch, without its history: back-propagation
// through time ends where the batch begins. Register it beside the recurrent layer:
//
//   const auto [outputs, hidden] = gru->forward(input, state->hidden(input.size(0)));
//   state->carry(hidden);
//
// A trainer resets it at the ends of epochs and at the start of a training, saves it in checkpoints, and sets
// it aside while something is evaluated: every evaluation begins without a state. A model that is put into
// evaluation mode by hand carries a state of its own. It is no parameter and no buffer: weights' files and
// averages do not have it. What is not finite is carried on as zeros, so that a step that is skipped because
// of it does not spoil those behind it. A part under an activation checkpoint uses only states that are
// registered within it (Error).
class KINDLING_API CarriedStateImpl : public torch::nn::Cloneable<CarriedStateImpl> {
 public:
  explicit CarriedStateImpl(CarriedStateOptions options = {});

  // What the batch before has left; undefined after a reset: recurrent layers then begin with zeros. Throws
  // DataError when that batch had another number of samples.
  at::Tensor hidden(std::int64_t batch_size) const;
  // The same for a layer with a cell state, as LSTM has.
  std::optional<std::tuple<at::Tensor, at::Tensor>> hidden_and_cell(std::int64_t batch_size) const;
  // Keeps what a batch leaves, detached.
  void carry(const at::Tensor& hidden);
  void carry(const std::tuple<at::Tensor, at::Tensor>& hidden_and_cell);
  // The next batch begins without a state.
  void reset_state();
  [[deprecated("use reset_state()")]] void forget() { reset_state(); }

  const CarriedStateOptions& options() const noexcept { return options_; }

  // What is carried, by mode: training, evaluation. The tensors are never written to.
  struct OfMode {
    std::vector<at::Tensor> tensors{};
    std::int64_t num_batches = 0;  // since it was empty
  };
  using Carried = std::array<OfMode, 2>;
  const Carried& carried() const noexcept { return carried_; }
  void set_carried(Carried carried) { carried_ = std::move(carried); }
  // For checkpoints. Throws CheckpointError for what is no such state.
  void save_state(StateDict& state) const;
  void load_state(const StateDict& state, Device device);

  void reset() override {}  // for copies
  void pretty_print(std::ostream& stream) const override;

 private:
  void require_within_part() const;
  void keep(std::vector<at::Tensor> tensors);
  const std::vector<at::Tensor>& given_to(std::int64_t batch_size) const;
  OfMode& of_mode() { return carried_[is_training() ? 0 : 1]; }

  CarriedStateOptions options_;
  Carried carried_;
};
TORCH_MODULE(CarriedState);

}  // namespace kindling
