#pragma once

#include "kindling/tensors/batch.h"

namespace kindling {

// Turns batches into an optimizer step: the gradients of one batch or of several (a window), then clipping,
// update and log, in this order. Reads no tensor on the host; the loop counts the progress.
class Step {
 public:
  virtual ~Step() = default;
  // Runs forward and backward of a batch and adds its gradients to those of the window. After the last batch
  // of the window, updates with the mean gradient over all its samples.
  virtual void run(const Batch& batch, bool ends_window) = 0;
  // Updates with the gradients so far, for a window that ended unexpectedly.
  virtual void end_window() = 0;
  // Call it when no step follows for now: the epoch has ended, or training stops.
  virtual void end_epoch() {}
};

}  // namespace kindling
