#pragma once

#include <string>

#include "kindling/nn/module.h"

namespace kindling {

// What of the epoch's record a callback watches: its options, where they are not empty, else the model's
// monitor(). Throws ConfigError for another value than the model's without a mode. `place` is the callback.
Module::Monitor choose_monitor(const std::string& monitor, const std::string& mode, const Module& model,
                               const char* place);

}  // namespace kindling
