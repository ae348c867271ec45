#pragma once

#include <cstdint>

#include "kindling/base/export.h"
#include "kindling/nn/module.h"
#include "kindling/training/trainer_options.h"

namespace kindling {

// Throws ConfigError for a model with class weights and options with which a step adds up several losses:
// gradients are added up as means over samples, and the mean of weighted means is not the weighted mean.
KINDLING_API void require_one_loss_per_step(const Module& model, const TrainerOptions& options,
                                            std::int64_t num_ranks);

}  // namespace kindling
