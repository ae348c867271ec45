#pragma once

#include <ATen/core/Tensor.h>

#include <span>
#include <vector>

namespace kindling {

// A step that has been recorded, made again: with other inputs, on the same memory.
class StepReplay {
 public:
  virtual ~StepReplay() = default;

  // The first of the inputs, laid out as the recorded ones; the others stay.
  virtual void set_inputs(std::span<const at::Tensor> inputs) = 0;
  // What the gradient of the loss begins with is read by the second, in which a device does all of it.
  virtual void run_forward() = 0;
  virtual void run_backward() = 0;

  // Where each run leaves its results; they stay there until the next one.
  virtual const std::vector<at::Tensor>& outputs() const noexcept = 0;
  // Memory that has been there before and that a run changes, such as running statistics; uint8.
  virtual const std::vector<at::Tensor>& changed() const noexcept = 0;
  // Whether somebody else holds a result of the latest run, which another run would change.
  virtual bool is_lent() const = 0;
  // Whether a tensor that the work reads, and that was not known to the recording, has been let go of by all
  // others or has got other memory: then the work reads something else now.
  virtual bool has_lost_tensors() const = 0;
  // Gives memory back until the next run: that of intermediate results, or of results that nobody holds, too.
  enum class Memory { intermediate, all };
  virtual void release(Memory memory) = 0;
};

}  // namespace kindling
