#include "launch/slurm_lists.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <string_view>

namespace kindling {
namespace {

bool is_digit(unsigned char c) { return std::isdigit(c) != 0; }

// A character of a name outside of brackets.
bool is_of_name(unsigned char c) { return std::isalnum(c) != 0 || c == '-' || c == '_' || c == '.'; }

// Takes a number off the beginning.
std::optional<std::int64_t> take_number(std::string_view& text) {
  std::int32_t number = 0;
  const auto [stop, code] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (code != std::errc() || number < 0) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(stop - text.data()));
  return number;
}

bool take(std::string_view& text, std::string_view wanted) {
  if (!text.starts_with(wanted)) return false;
  text.remove_prefix(wanted.size());
  return true;
}

}  // namespace

std::optional<std::string> first_host(const std::string& list) {
  std::string host;
  for (auto at = list.begin(); at != list.end() && *at != ','; ++at) {
    if (*at == '[') {
      const auto end = std::find(at, list.end(), ']');
      const auto first_end = std::find_if_not(at + 1, end, is_digit);
      if (end == list.end() || first_end == at + 1) return std::nullopt;
      host.append(at + 1, first_end);
      at = end;
    } else if (is_of_name(*at)) {
      host += *at;
    } else {
      return std::nullopt;
    }
  }
  return host.empty() ? std::nullopt : std::optional(host);
}

std::optional<std::int64_t> tasks_of_node(const std::string& list, std::int64_t node) {
  for (std::string_view rest = list; !rest.empty();) {
    const auto tasks = take_number(rest);
    if (!tasks) return std::nullopt;
    std::optional<std::int64_t> nodes = 1;
    if (take(rest, "(x") && (!(nodes = take_number(rest)) || !take(rest, ")"))) return std::nullopt;
    if (!rest.empty() && !take(rest, ",")) return std::nullopt;
    node -= *nodes;
    if (node < 0) return tasks;
  }
  return std::nullopt;
}

}  // namespace kindling
