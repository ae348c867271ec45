#pragma once

#include <span>
#include <string>
#include <string_view>

#include "kindling/base/export.h"

namespace kindling {

// Whether the whole name fits a pattern as of a shell: `*` is any number of characters, dots among them, `?`
// is one (byte), and everything else is itself. `net.0.*` fits net.0.weight.
KINDLING_API bool matches(std::string_view name, std::string_view pattern);

// Throws ConfigError when the pattern fits none of the names, with the nearest one, or all of a few.
KINDLING_API void require_match(std::span<const std::string> names, const std::string& pattern,
                                const std::string& place);

}  // namespace kindling
