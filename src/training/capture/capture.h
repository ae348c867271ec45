#pragma once

#include <memory>

#include "training/step/batch_gradients.h"
#include "training/step/optimizer_update.h"

namespace kindling {

// Returns whether the steps of the context's model are captured and replayed, or why not, whatever they do.
CaptureMode capture_mode(const StepContext& context);

// Return the objects that capture forward and backward, and the update. capture_update() returns nullptr on
// the CPU, where capturing the update gains nothing.
std::unique_ptr<BatchGradients> capture_gradients(const StepContext& context);
std::unique_ptr<UpdateCapture> capture_update(const StepContext& context);

}  // namespace kindling
