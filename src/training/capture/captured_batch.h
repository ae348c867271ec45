#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "graph/recording/recording.h"
#include "graph/recording/step_replay.h"
#include "metrics/marked_row.h"
#include "training/capture/batch_layout.h"
#include "training/capture/model_fingerprint.h"

namespace kindling {

// What forward and backward of a batch give.
struct BatchResults {
  at::Tensor loss;
  std::vector<at::Tensor> gradients;  // of the model's parameters, undefined where there is none
  MarkedRow row{};                    // what the model has logged
  std::vector<at::Tensor> logged{};   // the tensors of it

  std::vector<at::Tensor> all() const;
};

// Forward and backward of the batches of one layout, on their way from the first such batch to a replay.
class CapturedBatch {
 public:
  // `step_kernels`: TrainerOptions::step_kernels.
  CapturedBatch(const Batch& batch, std::string step_kernels)
      : layout_(batch), step_kernels_(std::move(step_kernels)) {}

  bool fits(const Batch& batch) const { return layout_.fits(batch); }

  // What the gradient of the loss begins with; its memory is read by replays. Defined by the first loss.
  void take_seed_of(const at::Tensor& loss);
  const at::Tensor& seed() const noexcept { return seed_; }
  double seed_factor() const noexcept { return seed_factor_; }
  void set_seed(const at::Tensor& value, double factor);

  Recording begin_recording(const Batch& batch, const ModelFingerprint& look, Device device) const;
  void end_recording(Recording recording, const BatchResults& results);
  // Once the step of the latest recording is over: why there can be no replay; empty: nothing speaks against
  // it.
  std::string why_not();
  bool is_recorded() const noexcept { return recordings_.size() == 2; }

  // From the recordings, which are no longer needed; on a device from `work`, too, which is given once more
  // to the current stream, as what a graph is. Throws c10::Error.
  using Work = std::function<BatchResults(const Batch&)>;
  void make_replay(const Batch& batch, const Work& work);
  StepReplay* replay() const noexcept { return replay_.get(); }
  // Of the replay, if there is one.
  void release(StepReplay::Memory memory) {
    if (replay_) replay_->release(memory);
  }

  // Replays the batch: the results hold until the next time.
  const at::Tensor& forward(const Batch& batch, EpochLog& log);  // gives the loss
  std::span<const at::Tensor> backward();                        // gives the gradients
  const MarkedRow& row() const noexcept { return row_; }

 private:
  std::vector<at::Tensor> inputs(const Batch& batch) const;

  BatchLayout layout_;
  std::string step_kernels_;
  at::Tensor seed_;
  double seed_factor_ = 0;  // that it was made from
  std::vector<Recording> recordings_;
  std::optional<MarkedRow> former_row_;
  MarkedRow row_;
  std::size_t num_gradients_ = 0;
  std::unique_ptr<StepReplay> replay_;
};

}  // namespace kindling
