#pragma once

#include <string>
#include <string_view>

#include "kindling/metrics/epoch_log.h"
#include "kindling/nn/manual_module.h"
#include "kindling/tensors/state_dict.h"
#include "kindling/training/trainer_options.h"

namespace kindling {

// A model's own, checked and with the names of its parameters. Throws ConfigError.
NamedOptimizers named_optimizers_of(ManualModule& model);
// The one of this name. Throws ConfigError that lists those there are.
Optimizer& optimizer_named(const NamedOptimizers& optimizers, std::string_view name);

// The column of the log with the learning rate of each of an optimizer's updates.
inline std::string rate_column(std::string_view name) { return "lr_" + std::string(name); }
// At the end of an epoch, with its log on the host: says which optimizers have run no update in it.
void tell_of_idle(const Module& model, const NamedOptimizers& optimizers, const EpochLog& log);

// As saved_state() and load_saved_state() have it, each under its name.
void save_optimizers(const NamedOptimizers& optimizers, StateDict& state, const TrainerOptions& options);
// Those of the model with their saved state, none when none has been saved. Throws CheckpointError for other
// names than the saved ones.
NamedOptimizers load_optimizers(Module& model, const StateDict& state, const TrainerOptions& options);

}  // namespace kindling
