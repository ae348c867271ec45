#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "kindling/device/device.h"
#include "kindling/loggers/progress.h"
#include "kindling/metrics/epoch_log.h"
#include "kindling/nn/module.h"

namespace kindling {

// What stands behind a TrainerView.
struct TrainerInfo {
  std::vector<Device> gpus{};                // empty: the CPU
  std::optional<std::int64_t> max_epochs{};  // absent: only the steps count
  std::int64_t num_train_batches = 0;        // of an epoch; 0: unknown
  const Progress* progress = nullptr;
  EpochLog* log = nullptr;  // of the loop that is running

  Device device() const { return gpus.empty() ? cpu() : gpus.front(); }
};

// Gives a model its trainer and moves it to the first card; without one it stays where it is.
void attach(Module& model, const std::shared_ptr<TrainerInfo>& info);
// Moves the tensors of a batch in the same way.
Batch moved_batch(Batch batch, const TrainerInfo& info);

}  // namespace kindling
