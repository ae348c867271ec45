#pragma once

#include <c10/core/Stream.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "device/operator_settings.h"
#include "kindling/base/log.h"
#include "training/capture/captured_batch.h"
#include "training/capture/model_fingerprint.h"
#include "training/capture/step_comparison.h"
#include "training/step/batch_gradients.h"

namespace kindling {

// Replays the forward and backward captured in earlier steps where that is bit-identical; otherwise runs them
// eagerly. Batches of one layout share a recording: the first step warms up, two are recorded and compared,
// and later ones are replayed. The first replay of each epoch, and one of each 1,000, runs next to an eager
// step and must equal it. A replay that differs is never used, and steps stay eager until a device has
// reported the result.
class CapturedGradients : public BatchGradients {
 public:
  explicit CapturedGradients(const StepContext& context);

  at::Tensor compute(const Batch& batch, bool begins_window, const SeedOf& seed_of) override;
  void end_epoch() override;

 private:
  bool has_changed();
  void start_over();
  CapturedBatch* recorded_like(const Batch& batch);
  // Computes a batch of a window whose gradients have been cleared where necessary.
  at::Tensor advance(CapturedBatch& recorded, const Batch& batch, const SeedOf& seed_of);
  at::Tensor warm_up(CapturedBatch& recorded, const Batch& batch, const SeedOf& seed_of);
  at::Tensor record(CapturedBatch& recorded, const Batch& batch, const SeedOf& seed_of);
  at::Tensor replay(CapturedBatch& recorded, const Batch& batch, const SeedOf& seed_of);
  at::Tensor forward_of(CapturedBatch& recorded, const Batch& batch);
  at::Tensor checked(CapturedBatch& recorded, const Batch& batch, const SeedOf& seed_of);
  bool trains_unregistered(const at::Tensor& loss, const Recording& recording) const;
  BatchResults compute_apart(const Batch& batch, CapturedBatch& recorded, const SeedOf& seed_of,
                             Recording* recording);
  // Leaves the log and the parameters' gradients unchanged.
  BatchResults compute_unseen(const Batch& batch, const CapturedBatch& recorded);
  at::Tensor compute_eagerly(const Batch& batch, bool begins_window, const SeedOf& seed_of);
  StepComparison::Run run_of(const CapturedBatch& recorded, std::vector<at::Tensor> results) const;
  // Returns the reason of a failure; empty: the replay succeeded.
  std::string try_replay(CapturedBatch& recorded, const Batch& batch, const SeedOf& seed_of);
  bool waits_for_answer();
  bool checks_all() const { return context_.options.step_graph == "check"; }
  void fill_seed(CapturedBatch& recorded, const at::Tensor& loss, const LossSeed& of);
  void give_up(const std::string& reason);  // a warning if step_graph is "on"
  void give_up(const std::string& reason, LogLevel level);

  StepComparison comparison_;
  std::optional<c10::Stream> side_;  // on a device: the stream used for recording
  bool is_off_ = false;
  std::optional<OperatorSettings> settings_;  // with which steps are captured
  std::optional<ModelFingerprint> fingerprint_;
  std::int64_t num_looks_ = 0, checked_in_epoch_ = -1, num_unchecked_ = 0;
  std::vector<std::unique_ptr<CapturedBatch>> batches_;
  std::vector<bool> is_cleared_;      // by parameter: whether the optimizer clears its gradient
  CapturedBatch* latest_ = nullptr;   // the latest one to be recorded
  CapturedBatch* running_ = nullptr;  // the latest one to be replayed
};

}  // namespace kindling
