#pragma once

#include <ATen/Context.h>
#include <c10/core/Stream.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "training/eager_gradients.h"
#include "training/model_look.h"
#include "training/recorded_batch.h"
#include "training/step_comparison.h"

namespace kindling {

// Forward and backward as they have been recorded in earlier steps, where that gives the same bits, else
// operator by operator. Batches of one layout share a recording: the first step warms up, two are recorded
// and compared, then they are replayed. The first replay of each epoch, and one of each 1,000, is made beside
// an eager step and must equal it; a replay that does not is never used, and until a device has told, steps
// are made operator by operator.
class RecordedGradients : public BatchGradients {
 public:
  // All references outlive it.
  RecordedGradients(TrainState& state, TrainerInfo& info, const TrainerOptions& options);

  at::Tensor compute(const Batch& batch, bool begins_window, double factor) override;
  void end_epoch() override;

 private:
  bool has_changed();
  void begin_anew();
  RecordedBatch* recorded_like(const Batch& batch);
  // In a window whose gradients have been cleared where they were to be.
  at::Tensor advance(RecordedBatch& recorded, const Batch& batch, double factor);
  at::Tensor warm_up(RecordedBatch& recorded, const Batch& batch, double factor);
  at::Tensor record(RecordedBatch& recorded, const Batch& batch, double factor);
  at::Tensor replay(RecordedBatch& recorded, const Batch& batch, double factor);
  at::Tensor checked(RecordedBatch& recorded, const Batch& batch, double factor);
  BatchResults compute_apart(const Batch& batch, RecordedBatch& recorded, double factor,
                             Recording* recording);
  // Gives nothing to the log and to the parameters.
  BatchResults compute_unseen(const Batch& batch, const at::Tensor& seed);
  at::Tensor compute_eagerly(const Batch& batch, bool begins_window, double factor);
  StepComparison::Run run_of(const RecordedBatch& recorded, std::vector<at::Tensor> results) const;
  // Why it fails; empty: it does not.
  std::string try_replay(RecordedBatch& recorded, const Batch& batch, double factor);
  bool waits_for_answer();
  void fill_seed(RecordedBatch& recorded, const at::Tensor& loss, double factor);
  void give_up(const std::string& reason);

  TrainState& state_;
  TrainerInfo& info_;
  const TrainerOptions& options_;
  EagerGradients eager_;
  StepComparison comparison_;
  std::optional<c10::Stream> side_;  // of a device: where steps are recorded
  bool is_off_ = false;
  std::optional<at::Float32Precision> products_;  // that recordings are made with
  std::optional<ModelLook> look_;
  std::int64_t num_looks_ = 0, looked_in_epoch_ = -1, checked_in_epoch_ = -1, num_unchecked_ = 0;
  std::vector<std::unique_ptr<RecordedBatch>> batches_;
  std::vector<bool> is_cleared_;      // of the parameters: the optimizer clears its gradient
  RecordedBatch* latest_ = nullptr;   // whose recording has just been made
  RecordedBatch* running_ = nullptr;  // which has been replayed
};

}  // namespace kindling
