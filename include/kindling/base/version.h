#pragma once

#include "kindling/base/export.h"

namespace kindling {

// "0.1.0": of the library that is loaded.
KINDLING_API const char* version() noexcept;

}  // namespace kindling
