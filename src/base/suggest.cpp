#include "kindling/base/suggest.h"

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "base/joined.h"

namespace kindling {
namespace {

constexpr std::size_t kMaxSpelling = 200;  // a longer name is not compared without its case

// Returns the number of edits (insert, delete, replace, swap of neighbours) between two words: optimal string
// alignment.
std::size_t edit_distance(std::string_view from, std::string_view to) {
  std::vector<std::size_t> before_last(to.size() + 1);
  std::vector<std::size_t> last(to.size() + 1);
  std::vector<std::size_t> row(to.size() + 1);
  for (std::size_t j = 0; j <= to.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= from.size(); ++i) {
    std::swap(before_last, last);
    std::swap(last, row);
    row[0] = i;
    for (std::size_t j = 1; j <= to.size(); ++j) {
      const std::size_t replaced = last[j - 1] + (from[i - 1] == to[j - 1] ? 0 : 1);
      row[j] = std::min({replaced, last[j] + 1, row[j - 1] + 1});
      const bool swapped = i > 1 && j > 1 && from[i - 1] == to[j - 2] && from[i - 2] == to[j - 1];
      if (swapped) row[j] = std::min(row[j], before_last[j - 2] + 1);
    }
  }
  return row[to.size()];
}

// Returns the name in lower case without '_', '-' and spaces: people spell names with and without them.
std::string plain_spelling(std::string_view name) {
  std::string plain = lower_case(name);
  std::erase_if(plain, [](char c) { return c == '_' || c == '-' || c == ' '; });
  return plain;
}

}  // namespace

std::string nearest(std::string_view name, std::span<const std::string> candidates) {
  if (name.size() <= kMaxSpelling) {
    const std::string plain = plain_spelling(name);
    for (const std::string& candidate : candidates)
      if (!plain.empty() && candidate != name && plain_spelling(candidate) == plain) return candidate;
  }
  const std::size_t limit = std::max<std::size_t>(1, name.size() / 3);
  std::string best;
  std::size_t best_distance = std::min(limit + 1, name.size());
  for (const std::string& candidate : candidates) {
    const std::size_t sizes =
        std::max(candidate.size(), name.size()) - std::min(candidate.size(), name.size());
    if (candidate == name || sizes >= best_distance) continue;  // also keeps very long names cheap
    const std::size_t distance = edit_distance(name, candidate);
    if (distance >= best_distance) continue;
    best = candidate;
    best_distance = distance;
  }
  return best;
}

std::vector<std::string> nearest_names(std::string_view name, std::span<const std::string> candidates,
                                       std::size_t count) {
  std::vector<std::pair<std::size_t, std::string>> by_distance;
  for (const std::string& candidate : candidates)
    by_distance.emplace_back(edit_distance(name.substr(0, 1000), candidate), candidate);
  std::ranges::stable_sort(by_distance, {}, &std::pair<std::size_t, std::string>::first);
  std::vector<std::string> names;
  for (const auto& [distance, candidate] : by_distance)
    if (names.size() < count) names.push_back(candidate);
  return names;
}

std::string list_names(std::span<const std::string> names) { return joined(names, ", "); }

}  // namespace kindling
