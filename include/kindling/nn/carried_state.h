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

// The hidden state of a stateful RNN, kept between batches without its history: back-propagation through time
// ends at the start of the batch. Register it next to the recurrent layer:
//
//   const auto [outputs, hidden] = gru->forward(input, state->hidden(input.size(0)));
//   state->carry(hidden);
//
// A trainer resets it at the end of each epoch and at the start of a run, saves it in checkpoints, and sets
// it aside during evaluations: every evaluation starts without a state. If you switch a model to evaluation
// mode yourself, it keeps a separate state there. It is neither a parameter nor a buffer, so weight files and
// weight averages do not contain it. Non-finite values are kept as zeros, so that a step that is skipped
// because of them does not spoil later ones. A part under an activation checkpoint may only use states that
// are registered within it (Error).
class KINDLING_API CarriedStateImpl : public torch::nn::Cloneable<CarriedStateImpl> {
 public:
  explicit CarriedStateImpl(CarriedStateOptions options = {});

  // Returns the state after the previous batch; undefined after a reset, so that recurrent layers start from
  // zeros. Throws DataError if that batch had another number of samples.
  at::Tensor hidden(std::int64_t batch_size) const;
  // The same for a layer with a cell state, such as LSTM.
  std::optional<std::tuple<at::Tensor, at::Tensor>> hidden_and_cell(std::int64_t batch_size) const;
  // Keeps the state after a batch, detached.
  void carry(const at::Tensor& hidden);
  void carry(const std::tuple<at::Tensor, at::Tensor>& hidden_and_cell);
  // Resets the state: the next batch starts without one.
  void reset_state();
  [[deprecated("use reset_state()")]] void forget() { reset_state(); }

  const CarriedStateOptions& options() const noexcept { return options_; }

  // The state of a mode (training or evaluation). The tensors are never written to.
  struct OfMode {
    std::vector<at::Tensor> tensors{};
    std::int64_t num_batches = 0;  // since the last reset
  };
  using Carried = std::array<OfMode, 2>;
  const Carried& carried() const noexcept { return carried_; }
  void set_carried(Carried carried) { carried_ = std::move(carried); }
  // For checkpoints. Throws CheckpointError for an invalid state.
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
