#pragma once

#include <ATen/core/Tensor.h>

#include <string_view>
#include <utility>

#include "kindling/device/device.h"
#include "kindling/metrics/epoch_log.h"

namespace kindling {

// The implementation of a ManualModule's update(), available while its training_step runs.
class ManualUpdates {
 public:
  virtual ~ManualUpdates() = default;
  virtual void update(std::string_view optimizer, const at::Tensor& loss, bool retain_graph) = 0;
};

// Where a model's log() and update() go.
struct ModelCalls {
  EpochLog* log = nullptr;           // of the running loop; set by LogScope
  ManualUpdates* updates = nullptr;  // of the running training step; set by UpdatesScope
};

// While it lives, what the model logs goes to this log; nullptr: nowhere.
class LogScope {
 public:
  LogScope(ModelCalls& calls, EpochLog* log) : calls_(calls), former_(std::exchange(calls.log, log)) {}
  ~LogScope() { calls_.log = former_; }
  LogScope(const LogScope&) = delete;
  LogScope& operator=(const LogScope&) = delete;

 private:
  ModelCalls& calls_;
  EpochLog* former_;
};

// While it lives, what the model logs is discarded.
class MutedLog {
 public:
  MutedLog(ModelCalls& calls, Device device) : scratch_(device, /*capacity=*/1), scope_(calls, &scratch_) {}

  const EpochLog& log() const noexcept { return scratch_; }

 private:
  EpochLog scratch_;
  LogScope scope_;
};

// While it lives, ManualModule::update() calls these updates.
class UpdatesScope {
 public:
  UpdatesScope(ModelCalls& calls, ManualUpdates& updates)
      : calls_(calls), former_(std::exchange(calls.updates, &updates)) {}
  ~UpdatesScope() { calls_.updates = former_; }
  UpdatesScope(const UpdatesScope&) = delete;
  UpdatesScope& operator=(const UpdatesScope&) = delete;

 private:
  ModelCalls& calls_;
  ManualUpdates* former_;
};

}  // namespace kindling
