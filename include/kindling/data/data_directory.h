#pragma once

#include <filesystem>
#include <string>

#include "kindling/base/export.h"

namespace kindling {

// Returns the directory of a named data set such as "mnist" if no other is given: the name below
// $KINDLING_DATA, else below the directory `kindling` of the user's cache ($XDG_CACHE_HOME or ~/.cache).
KINDLING_API std::filesystem::path data_directory(const std::string& name);

}  // namespace kindling
