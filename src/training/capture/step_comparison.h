#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>

#include <memory>
#include <optional>
#include <vector>

#include "kindling/device/device.h"
#include "tensors/run_difference.h"

namespace kindling {

// Compares the results of two runs of a step. On the CPU the answer is immediate and bitwise. A device
// compares asynchronously, and the answer arrives by a copy that does not block the host.
class StepComparison {
 public:
  struct Run {
    std::vector<at::Tensor> results, changes;  // its outputs, and the memory that it changes
    std::size_t num_gradients = 0;             // among the results, after the loss
    std::vector<at::Tensor> random;            // the state of generators after the run, in host memory
  };

  // The tolerance applies to devices only.
  StepComparison(Device device, RunTolerance tolerance) : device_(device), tolerance_(tolerance) {}

  // Keeps the first run. Its results must stay unchanged until compare(); its changes may be reverted.
  void keep(const Run& first);
  // Compares with the second run. `may_be_same` false: it is already known to differ.
  void compare(const Run& second, bool may_be_same);
  // True if a comparison has been started and answer() has not returned its answer.
  bool is_under_way() const noexcept { return is_same_.has_value() || done_ != nullptr; }
  // Returns whether the runs are equal; nullopt: not known yet.
  std::optional<bool> answer();
  // Abandons a running comparison.
  void drop();

 private:
  void compare_on_device(const Run& second);

  Device device_;
  RunTolerance tolerance_;
  std::vector<std::size_t> digests_, random_digests_;  // of the first run; digests_ on the CPU only
  Run first_;                                          // on a device only
  std::optional<bool> is_same_;
  at::Tensor differs_, differs_on_host_;  // bool; pinned
  std::unique_ptr<c10::Event> done_;      // differs_on_host_ has arrived
};

}  // namespace kindling
