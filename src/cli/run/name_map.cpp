#include "cli/run/name_map.h"

#include <algorithm>
#include <cstddef>

#include "kindling/base/error.h"
#include "kindling/base/suggest.h"

namespace kindling {

NameMap name_map_of(const std::vector<std::string>& rules, const std::string& source) {
  NameMap map;
  for (const std::string& rule : rules) {
    const std::size_t at = rule.find('=');
    if (at == std::string::npos)
      throw ConfigError(
          {.place = source + " " + rule, .found = "'=' is missing", .wanted = source + " FROM=TO"});
    map.emplace_back(rule.substr(0, at), rule.substr(at + 1));
  }
  return map;
}

void check_name_map(const NameMap& map, const std::vector<std::string>& names, const std::string& source) {
  for (const auto& [from, to] : map) {
    const auto fits = [&from = from](const std::string& name) { return name.starts_with(from); };
    if (std::any_of(names.begin(), names.end(), fits)) continue;
    const std::string close = nearest(from, names);
    throw ConfigError({.place = source + " " + from + "=" + to,
                       .found = "no name begins with '" + from + "'",
                       .wanted = "the beginning of a tensor name",
                       .remedy = close.empty() ? "" : "did you mean '" + close + "'?"});
  }
}

}  // namespace kindling
