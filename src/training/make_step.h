#pragma once

#include <memory>

#include "training/callbacks.h"
#include "training/step.h"
#include "training/train_state.h"
#include "training/trainer_info.h"

namespace kindling {

// The step for the kind of model that the state has, watched for host waits, and looked into where the
// options ask for it. All references outlive it. Throws ConfigError for options that such a model cannot
// have.
std::unique_ptr<Step> make_step(TrainState& state, TrainerInfo& info, const TrainerOptions& options,
                                const Callbacks& callbacks);

}  // namespace kindling
