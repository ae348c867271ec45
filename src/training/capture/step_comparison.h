#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>

#include <memory>
#include <optional>
#include <vector>

#include "kindling/device/device.h"
#include "tensors/run_difference.h"

namespace kindling {

// Whether two runs of a step leave the same numbers. On the CPU that is known at once, and to the bit; a
// device compares, and the answer comes by a copy that nobody waits for.
class StepComparison {
 public:
  struct Run {
    std::vector<at::Tensor> results, changes;  // what it gives, and memory that it changes
    std::size_t num_gradients = 0;             // among the results, behind the loss
    std::vector<at::Tensor> random;            // the state of generators behind it, in host memory
  };

  // The tolerance is a device's.
  StepComparison(Device device, RunTolerance tolerance) : device_(device), tolerance_(tolerance) {}

  // Of the first run. Its results stay where they are until compare(), its changes may be taken back.
  void keep(const Run& first);
  // With the second run; false: it is known to be another one.
  void compare(const Run& second, bool may_be_same);
  // A comparison has been made, and answer() has not told its answer.
  bool is_under_way() const noexcept { return is_same_.has_value() || done_ != nullptr; }
  // Nothing: it is not known yet.
  std::optional<bool> answer();
  // Forgets what is under way.
  void drop();

 private:
  void compare_on_device(const Run& second);

  Device device_;
  RunTolerance tolerance_;
  std::vector<std::size_t> digests_, random_digests_;  // of the first run; the former on the CPU
  Run first_;                                          // on a device
  std::optional<bool> is_same_;
  at::Tensor differs_, differs_on_host_;  // bool; pinned
  std::unique_ptr<c10::Event> done_;      // the latter has arrived
};

}  // namespace kindling
