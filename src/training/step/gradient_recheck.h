#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "training/step/step.h"

namespace kindling {

// Computes the loss and the gradients of some batches twice, and compares the bits
// (TrainerOptions::recheck_every_n_steps): a machine that computes something else the second time has a
// fault. Reads the answer on the host.
class GradientRecheck {
 public:
  // Adds the gradients of a batch to those of the parameters and returns the loss.
  using Pass = std::function<at::Tensor()>;

  // Throws ConfigError for a GPU without TrainerOptions::deterministic.
  explicit GradientRecheck(const StepContext& context);

  // Whether the running step is checked; of its batches, the first one is.
  bool is_due() const;
  // Runs `first` and returns its loss. Then runs `again` from the same random state, buffers and hidden
  // states, without lasting effects. `first` begins a window: it leaves the gradients of its batch alone.
  // Throws Error for a difference.
  at::Tensor run(const Pass& first, const Pass& again) const;

 private:
  // What a pass leaves behind, by name: the loss, the gradients and the buffers. All are copies.
  using Results = std::vector<std::pair<std::string, at::Tensor>>;

  static bool are_same(const Results& ones, const Results& others);
  Results results_of(const at::Tensor& loss) const;
  [[noreturn]] void report(const Results& first, const Results& second, const Results& third) const;

  const StepContext context_;
};

}  // namespace kindling
