#pragma once

#include <ATen/core/Tensor.h>

#include "kindling/tensors/batch.h"

namespace kindling {

// Forward and backward of a batch.
class BatchGradients {
 public:
  virtual ~BatchGradients() = default;
  // The gradients of the batch's loss, times `factor`, add to those of the parameters; at the beginning of a
  // window there are none. Gives the loss. What the model logs is marked in the training's log. The loss and
  // the marks hold until the next call. Throws Error for a loss that is no scalar.
  virtual at::Tensor compute(const Batch& batch, bool begins_window, double factor) = 0;
  // No batch follows for now.
  virtual void end_epoch() {}
};

}  // namespace kindling
