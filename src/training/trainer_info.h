#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "device/deterministic_operators.h"
#include "kindling/data/data_module.h"
#include "kindling/device/device.h"
#include "kindling/loggers/progress.h"
#include "kindling/metrics/epoch_log.h"
#include "kindling/nn/module.h"
#include "training/agreed_stop.h"
#include "training/epoch_clock.h"
#include "training/precision.h"

namespace kindling {

// What stands behind a TrainerView.
struct TrainerInfo {
  std::vector<Device> gpus{};  // empty: the CPU
  Precision precision{};
  bool is_channels_last = false;             // images and weights of the model that is trained
  std::optional<std::int64_t> max_epochs{};  // absent: only the steps count
  std::int64_t num_train_batches = 0;        // of an epoch; 0: unknown
  const Progress* progress = nullptr;
  EpochLog* log = nullptr;  // of the loop that is running
  AgreedStop* stop = nullptr;
  ManualUpdates* updates = nullptr;  // of the training step that is running

  DeterministicOperators deterministic_operators{};
  std::optional<std::string> float32_matmul_precision{};
  std::string why_not_recorded{};       // the steps of the model that is trained; empty: they are
  std::unique_ptr<EpochClock> clock{};  // nullptr: nobody asks where the time goes

  Device device() const { return gpus.empty() ? cpu() : gpus.front(); }
};

// While it lives, a model's updates go this way.
class UpdatesScope {
 public:
  UpdatesScope(TrainerInfo& info, ManualUpdates& updates)
      : info_(info), former_(std::exchange(info.updates, &updates)) {}
  ~UpdatesScope() { info_.updates = former_; }
  UpdatesScope(const UpdatesScope&) = delete;
  UpdatesScope& operator=(const UpdatesScope&) = delete;

 private:
  TrainerInfo& info_;
  ManualUpdates* former_;
};

// Gives a model its trainer and moves it to the first card; without one it stays where it is.
void attach(Module& model, const std::shared_ptr<TrainerInfo>& info);
// In the training's precision and memory layout.
Batch as_trained(Batch batch, const TrainerInfo& info);
// The way of a batch from a loader to a step: to the first card, through the data's on_after_batch_transfer
// (nullptr: there is none), into the training's precision.
Batch prepared_batch(Batch batch, DataModule* data, const TrainerInfo& info);

}  // namespace kindling
