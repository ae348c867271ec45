#pragma once

#include <string>

#include "kindling/base/export.h"
#include "kindling/loggers/record.h"
#include "kindling/nn/module.h"

namespace kindling {

// Returns the value of the epoch records that `place` monitors, by its options: empty ones use the model's.
// Throws ConfigError for a value other than the model's without a mode.
KINDLING_API Module::Monitor monitor_of(const std::string& monitor, const std::string& mode,
                                        const Module& model, const std::string& place);

// Throws ConfigError that lists the existing names if the record does not have it.
double value_of(const Record& record, const std::string& name, const std::string& place);

}  // namespace kindling
