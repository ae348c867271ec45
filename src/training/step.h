#pragma once

#include "kindling/tensors/batch.h"

namespace kindling {

// One optimizer step of a training: the gradients of a batch, then clipping, update and log, in this order.
class Step {
 public:
  virtual ~Step() = default;
  // Reads no tensor on the host; leaves the training's progress to the loop.
  virtual void run(const Batch& batch) = 0;
};

}  // namespace kindling
