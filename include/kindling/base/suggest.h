#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kindling/base/export.h"

namespace kindling {

// Did you mean: the candidate with the least Damerau-Levenshtein distance (optimal string alignment) to
// `name`, the first of several; empty when that is over a third of the name's length (one edit is always
// allowed). Never `name` itself.
KINDLING_API std::string nearest(std::string_view name, std::span<const std::string> candidates);

// The `count` candidates with the least distances to `name`, the nearest one first, however far they are.
KINDLING_API std::vector<std::string> nearest_names(std::string_view name,
                                                    std::span<const std::string> candidates,
                                                    std::size_t count);

// "a, b, c" for messages.
KINDLING_API std::string list_names(std::span<const std::string> names);

}  // namespace kindling
