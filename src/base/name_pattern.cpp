#include "kindling/base/name_pattern.h"

#include <algorithm>
#include <vector>

#include "kindling/base/error.h"
#include "kindling/base/suggest.h"

namespace kindling {
namespace {

constexpr std::size_t kMaxListed = 20;

// Candidates for a hint: the names, and everything below a prefix of one.
std::vector<std::string> candidates_of(std::span<const std::string> names) {
  std::vector<std::string> candidates;
  for (const std::string& name : names)
    for (std::size_t dot = name.find('.'); dot != std::string::npos; dot = name.find('.', dot + 1))
      candidates.push_back(name.substr(0, dot) + ".*");
  candidates.insert(candidates.end(), names.begin(), names.end());
  return candidates;
}

}  // namespace

bool matches(std::string_view name, std::string_view pattern) {
  constexpr auto kNone = std::string_view::npos;
  std::size_t at = 0, next = 0, star = kNone, taken = 0;  // `star` has taken the name up to `taken`
  while (at < name.size()) {
    if (next < pattern.size() && pattern[next] == '*') {
      star = next++;
      taken = at;
    } else if (next < pattern.size() && (pattern[next] == '?' || pattern[next] == name[at])) {
      ++next;
      ++at;
    } else if (star != kNone) {
      next = star + 1;
      at = ++taken;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', next) == kNone;
}

void require_match(std::span<const std::string> names, const std::string& pattern, const std::string& place) {
  if (std::ranges::any_of(names, [&](const std::string& name) { return matches(name, pattern); })) return;
  const std::string guess = nearest(pattern, candidates_of(names));
  const bool is_long = names.size() > kMaxListed;
  throw ConfigError({.place = place,
                     .found = "'" + pattern + "' matches no name",
                     .wanted = names.empty() ? "a model with parameters"
                               : is_long     ? "one of the model's " + std::to_string(names.size()) + " names"
                                             : "one of " + list_names(names),
                     .remedy = guess.empty() ? "" : "did you mean '" + guess + "'?"});
}

}  // namespace kindling
