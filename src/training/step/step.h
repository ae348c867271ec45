#pragma once

#include "kindling/tensors/batch.h"

namespace kindling {

// How batches become an optimizer step: the gradients of one batch or of several, a window, then clipping,
// update and log, in this order. Reads no tensor on the host; the training's progress is the loop's.
class Step {
 public:
  virtual ~Step() = default;
  // Forward and backward of a batch, whose gradients add to those of its window. The last one of the window
  // is followed by the update with the mean gradient over all samples of the window.
  virtual void run(const Batch& batch, bool ends_window) = 0;
  // The update with what there is, for a window whose last batch was not known to be the last.
  virtual void end_window() = 0;
  // No step follows in this epoch, or for now: it has ended, or the training is left.
  virtual void end_epoch() {}
};

}  // namespace kindling
