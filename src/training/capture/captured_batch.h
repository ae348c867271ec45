#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "graph/recording/recording.h"
#include "graph/recording/step_replay.h"
#include "kindling/tensors/batch.h"
#include "metrics/marked_row.h"
#include "training/capture/model_fingerprint.h"

namespace kindling {

// How a batch is nested, and the memory layout of its tensors.
class BatchLayout {
 public:
  explicit BatchLayout(const Batch& batch);
  bool fits(const Batch& batch) const;

 private:
  struct Leaf {
    std::vector<std::int64_t> sizes, strides;  // strides of dense tensors only
    at::ScalarType dtype;
    at::Device device;
    at::Layout layout;
    bool requires_grad;
  };
  std::vector<Leaf> leaves_;
  std::shared_ptr<const BatchStructure> structure_;
};

// The results of the forward and backward of a batch.
struct BatchResults {
  at::Tensor loss;
  std::vector<at::Tensor> gradients;  // by parameter of the model, undefined if there is none
  MarkedRow row{};                    // what the model has logged
  std::vector<at::Tensor> logged{};   // the tensors of the row

  std::vector<at::Tensor> all() const;
};

// The forward and backward of batches of one layout, from the first such batch through the recordings to
// replays.
class CapturedBatch {
 public:
  // `step_kernels`: TrainerOptions::step_kernels.
  CapturedBatch(const Batch& batch, std::string step_kernels)
      : layout_(batch), step_kernels_(std::move(step_kernels)) {}

  bool fits(const Batch& batch) const { return layout_.fits(batch); }

  // The gradient of the loss that backward starts from. Replays read its memory. The first loss defines its
  // shape and dtype.
  void take_seed_of(const at::Tensor& loss);
  const at::Tensor& seed() const noexcept { return seed_; }
  double seed_factor() const noexcept { return seed_factor_; }
  void set_seed(const at::Tensor& value, double factor);
  // On a device a seed may be times the weight of the loss over a number, whose memory replays read, too. 0:
  // it is not.
  void set_weight_unit(double unit);
  // Returns what backward starts from, for a loss with this weight.
  at::Tensor start(const at::Tensor& weight) const;

  Recording begin_recording(const Batch& batch, const ModelFingerprint& look, Device device) const;
  void end_recording(Recording recording, const BatchResults& results);
  // Returns why there can be no replay; empty: there can. Call it after the step of the latest recording.
  std::string capture_obstacle();
  bool is_recorded() const noexcept { return recordings_.size() == 2; }

  // Makes the replay from the recordings, which are then released. On a device it also captures `work` on the
  // current stream as a graph. Throws c10::Error.
  using Work = std::function<BatchResults(const Batch&)>;
  void make_replay(const Batch& batch, const Work& work);
  StepReplay* replay() const noexcept { return replay_.get(); }
  // Releases memory of the replay, if there is one.
  void release(StepReplay::Memory memory) {
    if (replay_) replay_->release(memory);
  }

  // Replay the batch. The results are valid until the next replay.
  const at::Tensor& forward(const Batch& batch, EpochLog& log);  // returns the loss
  std::span<const at::Tensor> backward();                        // returns the gradients
  const MarkedRow& row() const noexcept { return row_; }

 private:
  std::vector<at::Tensor> inputs(const Batch& batch) const;

  BatchLayout layout_;
  std::string step_kernels_;
  at::Tensor seed_;
  double seed_factor_ = 0;  // the factor that the seed was filled with
  at::Tensor unit_;         // on a device
  double weight_unit_ = 0;  // with which it was filled
  std::vector<Recording> recordings_;
  std::optional<MarkedRow> former_row_;
  MarkedRow row_;
  std::size_t num_gradients_ = 0;
  std::unique_ptr<StepReplay> replay_;
};

}  // namespace kindling
