#include "cli/commands/dynamic_size_word.h"

#include <charconv>
#include <cstdint>
#include <string_view>
#include <system_error>

#include "kindling/base/error.h"

namespace kindling {
namespace {

[[noreturn]] void refuse_word(const std::string& word, std::string_view part) {
  throw ConfigError({.place = "--dynamic " + word,
                     .found = "'" + std::string(part) + "' is not valid in a dynamic size",
                     .wanted =
                         "NAME=TENSOR:DIM, such as sequence=0:1, optionally followed by a comma-separated "
                         "list of TENSOR:DIM, min=N, max=N or multiple_of=N"});
}

std::int64_t number_in(const std::string& word, std::string_view part, std::string_view text) {
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) refuse_word(word, part);
  return number;
}

void add_part(DynamicSize& size, const std::string& word, std::string_view part) {
  const auto number_after = [&](std::size_t at) { return number_in(word, part, part.substr(at + 1)); };
  if (const std::size_t equals = part.find('='); equals != part.npos) {
    const std::string_view key = part.substr(0, equals);
    if (key == "min")
      size.min = number_after(equals);
    else if (key == "max")
      size.max = number_after(equals);
    else if (key == "multiple_of")
      size.multiple_of = number_after(equals);
    else
      refuse_word(word, part);
    return;
  }
  const std::size_t colon = part.find(':');
  if (colon == part.npos) refuse_word(word, part);
  const std::int64_t tensor = number_in(word, part, part.substr(0, colon));
  if (tensor < 0) refuse_word(word, part);
  size.places.push_back({static_cast<std::size_t>(tensor), number_after(colon)});
}

}  // namespace

DynamicSize dynamic_size_of(const std::string& word) {
  const std::size_t equals = word.find('=');
  if (equals == word.npos || equals == 0) refuse_word(word, word);
  DynamicSize size{.name = word.substr(0, equals)};
  std::string_view rest = std::string_view(word).substr(equals + 1);
  for (std::size_t comma = rest.find(','); comma != rest.npos; comma = rest.find(',')) {
    add_part(size, word, rest.substr(0, comma));
    rest.remove_prefix(comma + 1);
  }
  add_part(size, word, rest);
  return size;
}

}  // namespace kindling
