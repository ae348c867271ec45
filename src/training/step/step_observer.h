#pragma once

#include <ATen/core/Tensor.h>

#include "kindling/optim/optimizer.h"
#include "kindling/tensors/batch.h"

namespace kindling {

// Watches the steps of a replay. May read tensors on the host; must leave the state of the run as it is.
class StepObserver {
 public:
  virtual ~StepObserver() = default;
  // Whether the running step is watched in detail; the update of such a step is not captured.
  virtual bool is_watching() const = 0;
  // Before a batch of a watched step is trained on; `indices`: of its samples in the training set.
  virtual void before_batch(const Batch& batch, const at::Tensor& indices) = 0;
  // The gradients of a watched step before they are clipped.
  virtual void on_gradients(const Optimizer& optimizer) = 0;
  // After the work on such a batch; `updated`: it was the last one of its optimizer step.
  virtual void after_batch(bool updated) = 0;
};

}  // namespace kindling
