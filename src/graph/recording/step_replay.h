#pragma once

#include <ATen/core/Tensor.h>

#include <span>
#include <vector>

namespace kindling {

// Replays a captured step with other inputs, on the same memory.
class StepReplay {
 public:
  virtual ~StepReplay() = default;

  // Sets the first inputs, with the captured layouts; the others stay.
  virtual void set_inputs(std::span<const at::Tensor> inputs) = 0;
  // Run the forward and the backward. The initial gradient of the loss may be set between the two; a device
  // does all its work in run_backward().
  virtual void run_forward() = 0;
  virtual void run_backward() = 0;

  // The results of the latest run; the next run overwrites them.
  virtual const std::vector<at::Tensor>& outputs() const noexcept = 0;
  // Memory from before the capture that a run changes, such as running statistics; uint8.
  virtual const std::vector<at::Tensor>& changed() const noexcept = 0;
  // True if a result of the latest run has another owner, for whom another run would change it.
  virtual bool is_lent() const = 0;
  // True if a tensor that the work reads, and that was not known to the recording, was released by all other
  // owners or has moved: the step itself would then read something else.
  virtual bool has_lost_tensors() const = 0;
  // Releases memory until the next run: that of intermediate results, or also that of results without another
  // owner.
  enum class Memory { intermediate, all };
  virtual void release(Memory memory) = 0;
};

}  // namespace kindling
