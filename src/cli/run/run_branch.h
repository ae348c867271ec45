#pragma once

#include <filesystem>
#include <string>

#include "cli/run/run_again.h"
#include "kindling/loggers/progress.h"
#include "kindling/tensors/state_dict.h"

namespace kindling {

// Begins a new run, DIR/NAME/0001, next to a run that was trained again: with its config, its records and its
// state at this position, as one checkpoint from which `kindling fit --resume` continues. run.json has the
// parent. Returns the directory of the new run. Throws Error if it cannot be created.
std::filesystem::path begin_branch(const RunAgain& parent, const std::string& name, const Progress& at,
                                   StateDict state);

}  // namespace kindling
