#pragma once

#include "kindling/training/trainer_options.h"

namespace kindling {

// What a trainer works by: those of fast_dev_run, and with gradient_shards the window in which a process
// computes its shards; a group of one process is none. Throws ConfigError for options out of range, for a
// num_processes that the group does not have, for shards that cannot be shared out.
TrainerOptions resolved(TrainerOptions options);

}  // namespace kindling
