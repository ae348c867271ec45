#pragma once

#include <string>

#include "kindling/interop/export_program.h"

namespace kindling {

// Parses "sequence=0:1,1:1,max=1024": a name, the positions of the size (tensor:dimension), and its bounds.
// Throws ConfigError.
DynamicSize dynamic_size_of(const std::string& word);

}  // namespace kindling
