#pragma once

#include <span>
#include <string>
#include <string_view>

#include "kindling/base/export.h"

namespace kindling {

// True if the whole name matches a shell-style pattern: `*` matches any number of characters, including dots,
// `?` matches one (byte), and everything else matches itself. `net.0.*` matches net.0.weight.
KINDLING_API bool matches(std::string_view name, std::string_view pattern);

// Throws ConfigError if the pattern matches none of the names, with the nearest one, or with all if there are
// few.
KINDLING_API void require_match(std::span<const std::string> names, const std::string& pattern,
                                const std::string& place);

}  // namespace kindling
