#include "config/toml_parser.h"

#include <algorithm>
#include <sstream>

#include "config/checked_toml_plus_plus.h"
#include "config/findings.h"
#include "kindling/config/document.h"

namespace kindling::config {
namespace {

constexpr const char* kTooDeep = "tables, arrays and keys nest too deep";

[[noreturn]] void throw_at(const ConfigPlace& place, std::string text) {
  throw_findings({{.place = place, .text = std::move(text)}}, {place.source});
}

// Past the string, the comment or the character at `at`.
std::size_t token_end(std::string_view text, std::size_t at) {
  const char first = text[at];
  if (first == '#') return std::min(text.find('\n', at), text.size());
  if (first != '"' && first != '\'') return at + 1;
  const std::string three(3, first);
  const bool many_lines = text.substr(at, 3) == three;
  const std::string_view quote = std::string_view(three).substr(0, many_lines ? 3 : 1);
  at += quote.size();
  while (at < text.size() && text.substr(at, quote.size()) != quote) {
    at += first == '"' && text[at] == '\\' ? 2 : 1;
  }
  at += quote.size();  // up to two more still belong to the string
  for (int more = 0; many_lines && more < 2 && at < text.size() && text[at] == first; ++more) ++at;
  return at;
}

// The parser makes a table of every part of a dotted key, and a table's destructor recurses.
void check_keys(const ConfigSource& source) {
  const std::string_view text = source.text;
  std::size_t dots = 0;
  for (std::size_t at = 0; at < text.size(); at = token_end(text, at)) {
    if (std::string_view("=,[]{}\n").find(text[at]) != std::string_view::npos) dots = 0;
    if (text[at] == '.' && ++dots > ConfigDocument::kMaxDepth) throw_at(place_at(source, at), kTooDeep);
  }
}

// Our tree of toml++'s; refuses what nests too deep in it.
class TreeBuilder {
 public:
  explicit TreeBuilder(const ConfigSource& source) : source_(source) {}

  // `depth`: the tables and arrays around its values but the root.
  ConfigTable table(const toml::table& from, std::size_t depth = 0) const {
    ConfigTable to;
    for (const auto& [key, value] : from) {
      auto child = std::make_unique<ConfigNode>(node(value, depth));
      child->key_place = place(key.source());
      to.emplace(std::string(key.str()), std::move(child));
    }
    return to;
  }

 private:
  ConfigNode node(const toml::node& from, std::size_t depth) const {
    ConfigNode to;
    to.place = place(from.source());
    if (!from.is_value() && ++depth > ConfigDocument::kMaxDepth) throw_at(to.place, kTooDeep);
    if (const auto* nested = from.as_table()) {
      to.value = table(*nested, depth);
    } else if (const auto* items = from.as_array()) {
      ConfigArray array;
      for (const toml::node& item : *items) array.push_back(node(item, depth));
      to.value = std::move(array);
    } else if (const auto* text = from.as_string()) {
      to.value = text->get();
    } else if (const auto* integer = from.as_integer()) {
      to.value = integer->get();
    } else if (const auto* number = from.as_floating_point()) {
      to.value = number->get();
    } else if (const auto* truth = from.as_boolean()) {
      to.value = truth->get();
    } else {
      to.value = date(from);
    }
    return to;
  }

  static ConfigDate date(const toml::node& from) {
    std::ostringstream text;
    if (const auto* day = from.as_date()) text << day->get();
    if (const auto* time = from.as_time()) text << time->get();
    if (const auto* both = from.as_date_time()) text << both->get();
    return {text.str()};
  }

  ConfigPlace place(const toml::source_region& region) const {
    ConfigPlace at{.source = &source_, .line = region.begin.line, .column = region.begin.column};
    const bool one_line = region.end.line == region.begin.line && region.end.column > region.begin.column;
    if (one_line) at.length = region.end.column - region.begin.column;
    return at;
  }

  const ConfigSource& source_;
};

// The line at which the parser breaks off without saying where: with fewer lines it does not come so far.
std::size_t broken_line(std::string_view text) {
  std::vector<std::size_t> ends;
  for (std::size_t at = 0; at < text.size();) {
    at = std::min(text.find('\n', at), text.size() - 1) + 1;
    ends.push_back(at);
  }
  const auto is_fine = [&](std::size_t end) {
    try {
      static_cast<void>(toml::parse(text.substr(0, end)));
    } catch (const toml::parse_error&) {
    } catch (const BrokenAssertion&) {
      return false;
    }
    return true;
  };
  const auto broken = std::partition_point(ends.begin(), ends.end(), is_fine);
  return static_cast<std::size_t>(broken - ends.begin()) + 1;
}

}  // namespace

ConfigTable parse_toml(const ConfigSource& source) {
  if (source.text.size() > ConfigDocument::kMaxBytes) {
    throw_at({.source = &source},
             "the text has more than " + std::to_string(ConfigDocument::kMaxBytes) + " bytes");
  }
  check_keys(source);
  try {
    return TreeBuilder(source).table(toml::parse(std::string_view(source.text)));
  } catch (const toml::parse_error& error) {
    const toml::source_position at = error.source().begin;
    const bool too_deep = error.description().find("TOML_MAX_NESTED_VALUES") != std::string_view::npos;
    throw_at({.source = &source, .line = at.line, .column = at.column},
             too_deep ? kTooDeep : std::string(error.description()));
  } catch (const BrokenAssertion&) {
    throw_at({.source = &source, .line = broken_line(source.text), .column = 1}, "this is no TOML");
  }
}

}  // namespace kindling::config
