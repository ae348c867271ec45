#pragma once

#include "kindling/base/export.h"
#include "kindling/data/data_module.h"
#include "kindling/nn/module.h"

namespace kindling {

class Trainer;

// Recomputes the running statistics of a model's batch-norm layers for its current weights: one pass over the
// training data (up to limit_train_batches) without gradients, in training mode including dropout. They
// become the mean over the batches, as with torch.optim.swa_utils.update_bn. The samples come in the order of
// the first epoch; random numbers drawn here are not consumed. Layers that stay in evaluation mode, including
// frozen ones, keep their statistics; a model in training mode keeps the modes of all layers. Does nothing
// for a model without batch-norm layers.
KINDLING_API void update_bn(Trainer& trainer, Module& model, DataModule& data);

// True if update_bn() would change the model.
KINDLING_API bool has_batch_norm(const Module& model);

}  // namespace kindling
