#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "kindling/base/export.h"
#include "kindling/device/device.h"
#include "kindling/loggers/progress.h"
#include "kindling/metrics/epoch_log.h"

namespace kindling {

class ManualUpdates;
struct TrainingContext;  // private to the trainer

// A module's view of its trainer. The view is empty for a module that no trainer has prepared, and again when
// the trainer has been destroyed. The members of an empty view return the values in their comments.
class KINDLING_API TrainerView {
 public:
  TrainerView() = default;
  explicit TrainerView(std::weak_ptr<const TrainingContext> context) : context_(std::move(context)) {}

  explicit operator bool() const noexcept { return !context_.expired(); }

  std::vector<Device> gpus() const;                // {}
  Device device() const;                           // gpus()[0], else the CPU
  std::optional<std::int64_t> max_epochs() const;  // nothing
  Progress progress() const;                       // {}
  std::int64_t epoch() const { return progress().epoch; }
  std::int64_t batch_index() const { return progress().batch; }
  std::int64_t global_step() const { return progress().global_step; }
  std::int64_t num_train_batches() const;  // of an epoch; 0: unknown

  // Returns whether a step with a loss that is not finite ends the run or is skipped (on_nonfinite).
  bool checks_losses() const;  // false

  // Returns the log of the running loop; nullptr outside of loops.
  EpochLog* log() const;
  // Returns the interface for a ManualModule's updates; nullptr outside of training steps.
  ManualUpdates* updates() const;

 private:
  std::weak_ptr<const TrainingContext> context_;
};

}  // namespace kindling
