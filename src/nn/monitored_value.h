#pragma once

#include <string>

#include "kindling/loggers/record.h"
#include "kindling/nn/module.h"

namespace kindling {

// The value of the epoch records that `place` looks at, by its options: empty ones leave it to the model.
// Throws ConfigError for another value than the model's without a mode.
Module::Monitor monitor_of(const std::string& monitor, const std::string& mode, const Module& model,
                           const std::string& place);

// Throws ConfigError that names what there is, when the record does not have it.
double value_of(const Record& record, const std::string& name, const std::string& place);

}  // namespace kindling
