#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "kindling/base/export.h"
#include "kindling/device/device.h"
#include "kindling/metrics/device_log.h"

namespace kindling {

// What a trainer tells its model; written by the trainer alone.
struct TrainerState {
  std::vector<Device> gpus;                  // empty: the CPU
  std::optional<std::int64_t> max_epochs{};  // absent: only the steps count
  std::int64_t epoch = 0;                    // from 0
  std::int64_t batch_index = 0;              // within the epoch, from 0
  std::int64_t num_train_batches = 0;        // of an epoch
  std::int64_t global_step = 0;              // optimizer steps done
  DeviceLog* log = nullptr;                  // of the loop that is running; nullptr outside of loops
};

// What a module may see of its trainer. A handle: empty for a module that no trainer has prepared, and again
// when the trainer is gone. The other members of an empty view return what stands behind them.
class KINDLING_API TrainerView {
 public:
  TrainerView() = default;
  explicit TrainerView(std::weak_ptr<const TrainerState> state) : state_(std::move(state)) {}

  explicit operator bool() const noexcept { return !state_.expired(); }

  std::vector<Device> gpus() const;                // {}
  Device device() const;                           // gpus()[0], else the CPU
  std::optional<std::int64_t> max_epochs() const;  // nothing
  std::int64_t epoch() const;                      // 0
  std::int64_t batch_index() const;                // 0
  std::int64_t num_train_batches() const;          // 0
  std::int64_t global_step() const;                // 0

  // Marks a value for the trainer's log (see Module::log).
  void log(std::string_view name, const at::Tensor& value) const;

 private:
  std::weak_ptr<const TrainerState> state_;
};

}  // namespace kindling
