#pragma once

#include <ATen/core/Tensor.h>

#include <functional>

#include "kindling/tensors/batch.h"
#include "nn/untrained_tensors.h"
#include "training/step/step.h"

namespace kindling {

// The column of the log (Kind::internal) with the weight of a batch's train_loss, if it has another one than
// its samples.
inline constexpr const char* kLossWeightColumn = "loss weight";
// On a device: the same loss, but 0 where its weight is 0. Such a loss may be NaN, and does not count.
inline constexpr const char* kCountedLossColumn = "counted loss";

// The gradient of a loss from which its backward starts.
struct LossSeed {
  double factor = 1;
  bool skips_backward = false;  // no label of the batch counts: its gradient may be NaN, and is left out
  double weight_unit = 0;  // not 0: times the weight of the loss, which the device knows, over this number
};
// Returns the seed for a batch whose loss has this weight (undefined: its samples). Called once or more
// between forward and backward.
using SeedOf = std::function<LossSeed(const at::Tensor& weight)>;

// Computes the forward and backward of a batch as LibTorch runs them, operator by operator. A derived class
// may replay them instead.
class BatchGradients {
 public:
  explicit BatchGradients(const StepContext& context) : context_(context), state_(context.state) {}
  virtual ~BatchGradients() = default;
  // Adds the gradients of the batch's loss, times its seed, to those of the parameters (none at the start of
  // a window) and returns the loss. The model's logged values and the weight of the loss are marked in the
  // run's log. The loss and the marks are valid until the next call. Throws Error for a loss that is not a
  // scalar.
  virtual at::Tensor compute(const Batch& batch, bool begins_window, const SeedOf& seed_of) {
    const at::Tensor loss = forward(batch, begins_window), weight = weight_in(*context_.calls.log);
    backward(loss, seed_of(weight), weight);
    return loss;
  }
  // Returns the weight of the latest loss, as marked in a log; undefined: its samples.
  static at::Tensor weight_in(EpochLog& log) {
    return log.marked_tensor(log.column(kLossWeightColumn, EpochLog::Kind::internal));
  }
  // Call it when no batch follows for now.
  virtual void end_epoch() { untrained_.report(*state_.model); }

 protected:
  // The model has other layers now: looks again for gradients that no optimizer uses.
  void model_changed() { watched_generation_ = -1; }
  at::Tensor forward(const Batch& batch, bool begins_window);
  void backward(const at::Tensor& loss, const LossSeed& seed, const at::Tensor& weight);
  // Returns the gradient of the loss that backward starts from, of its shape and type: the seed times a
  // scaler's scale.
  at::Tensor seed(const at::Tensor& loss, double factor);

  const StepContext context_;
  TrainState& state_;

 private:
  void require_scalar(const at::Tensor& loss) const;
  void mark_weight(const at::Tensor& loss, const at::Tensor& weight) const;
  void watch_untrained(const at::Tensor& loss);

  at::Tensor seed_;  // used without a scaler
  double seed_factor_ = 0;
  UntrainedTensors untrained_;
  bool has_warned_of_uses_ = false;
  std::int64_t watched_generation_ = -1, watched_epoch_ = -1;  // when the tensors were noted last
  std::int64_t num_windows_ = 0;                               // since then
};

}  // namespace kindling
