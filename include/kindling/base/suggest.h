#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kindling/base/export.h"

namespace kindling {

// For "did you mean": returns the first candidate that differs from `name` only in case and in '_', '-' and
// spaces (adamw for AdamW, small_cnn for smallcnn); else the candidate with the least Damerau-Levenshtein
// distance (optimal string alignment) to `name`, the first one among equals; empty if the distance is over a
// third of the name's length (one edit is always allowed). Never returns `name` itself.
KINDLING_API std::string nearest(std::string_view name, std::span<const std::string> candidates);

// Returns the `count` candidates with the least distances to `name`, nearest first, whatever the distance.
KINDLING_API std::vector<std::string> nearest_names(std::string_view name,
                                                    std::span<const std::string> candidates,
                                                    std::size_t count);

// Returns "a, b, c" for messages.
KINDLING_API std::string list_names(std::span<const std::string> names);

}  // namespace kindling
