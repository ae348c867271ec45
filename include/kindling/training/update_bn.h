#pragma once

#include "kindling/base/export.h"
#include "kindling/data/data_module.h"
#include "kindling/nn/module.h"

namespace kindling {

class Trainer;

// Computes the running statistics of a model's batch-norm layers anew, for the weights that it has: one pass
// over the training data (as far as limit_train_batches) without gradients, in training mode, dropout
// included; they become the mean over the batches. The numbers are those of torch.optim.swa_utils.update_bn.
// The samples come in the order of the first epoch; random numbers that are drawn here are given back.
// Layers that stay in evaluation mode, frozen ones too, keep their statistics; a model that is in training
// mode keeps the modes of all layers. Nothing is done for a model without such layers.
KINDLING_API void update_bn(Trainer& trainer, Module& model, DataModule& data);

// Whether update_bn() would change it.
KINDLING_API bool has_batch_norm(const Module& model);

}  // namespace kindling
