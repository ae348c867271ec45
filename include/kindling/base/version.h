#pragma once

#include "kindling/base/export.h"

namespace kindling {

// Returns the version of the loaded library: "0.1.0".
KINDLING_API const char* version() noexcept;

}  // namespace kindling
