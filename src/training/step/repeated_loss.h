#pragma once

#include <vector>

#include "kindling/base/error.h"
#include "kindling/base/export.h"
#include "kindling/optim/optimizer.h"
#include "kindling/training/trainer_options.h"

namespace kindling {

struct RepeatedLossConditions {
  bool reduces = false;  // gradients are reduced over several ranks or gradient_shards
  bool is_on_cpu = true;
};

// Returns an error for every option that an optimizer which evaluates the loss of a batch several times does
// not support; nothing for other optimizers.
KINDLING_API std::vector<ErrorParts> repeated_loss_errors(const Optimizer& optimizer,
                                                          const TrainerOptions& options,
                                                          const RepeatedLossConditions& conditions);

}  // namespace kindling
