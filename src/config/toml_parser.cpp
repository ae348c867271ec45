#include "config/toml_parser.h"

#include <sstream>

#include "config/checked_toml_plus_plus.h"
#include "config/findings.h"
#include "config/raw_scan.h"
#include "kindling/base/error.h"
#include "kindling/config/document.h"

namespace kindling::config {
namespace {

[[noreturn]] void throw_at(const ConfigPlace& place, std::string text) {
  throw_findings({{.place = place, .text = std::move(text)}}, {place.source});
}

void check_raw_text(const ConfigSource& source) {
  if (source.text.size() > ConfigDocument::kMaxBytes) {
    throw_at({.source = &source},
             "the text has more than " + std::to_string(ConfigDocument::kMaxBytes) + " bytes");
  }
  auto finding = find_forbidden_byte(source.text);
  if (!finding) finding = find_unparsable(source.text, ConfigDocument::kMaxDepth);
  if (finding) throw_at(place_at(source, finding->offset), finding->text);
}

class TreeBuilder {
 public:
  explicit TreeBuilder(const ConfigSource& source) : source_(source) {}

  ConfigTable table(const toml::table& from) const {
    ConfigTable to;
    for (const auto& [key, value] : from) {
      auto child = std::make_unique<ConfigNode>(node(value));
      child->key_place = place(key.source());
      to.emplace(std::string(key.str()), std::move(child));
    }
    return to;
  }

 private:
  ConfigNode node(const toml::node& from) const {
    ConfigNode to;
    to.place = place(from.source());
    if (const auto* nested = from.as_table()) {
      to.value = table(*nested);
    } else if (const auto* items = from.as_array()) {
      ConfigArray array;
      for (const toml::node& item : *items) array.push_back(node(item));
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

}  // namespace

ConfigTable parse_toml(const ConfigSource& source) {
  check_raw_text(source);
  try {
    return TreeBuilder(source).table(toml::parse(std::string_view(source.text)));
  } catch (const toml::parse_error& error) {
    const toml::source_position at = error.source().begin;
    throw_at({.source = &source, .line = at.line, .column = at.column}, std::string(error.description()));
  } catch (const BrokenAssertion&) {
    throw_at({.source = &source}, "the text is no TOML");
  }
}

}  // namespace kindling::config
