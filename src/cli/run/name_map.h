#pragma once

#include <string>
#include <utility>
#include <vector>

namespace kindling {

// As LoadOptions::map: the beginnings of names and what replaces them.
using NameMap = std::vector<std::pair<std::string, std::string>>;

// Parses rules "FROM=TO", as of --map. `source` is what errors call the rules: "--map" or "model.init_map".
// Throws ConfigError for a rule without '='.
NameMap name_map_of(const std::vector<std::string>& rules, const std::string& source);

// Throws ConfigError for a rule that applies to none of the names.
void check_name_map(const NameMap& map, const std::vector<std::string>& names, const std::string& source);

}  // namespace kindling
