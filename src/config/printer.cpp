#include "kindling/config/printer.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "base/joined.h"
#include "base/utf8.h"
#include "config/option_checks.h"
#include "config/toml_text.h"
#include "kindling/base/error.h"
#include "kindling/base/number_text.h"
#include "kindling/base/text.h"

namespace kindling {
namespace {

constexpr std::size_t kMaxAligned = 40;  // a longer "key = value" does not shift the other comments

template <class Value>
std::string value_text(const Value& value) {
  if constexpr (config::OptionArray<Value>) {
    return "[" + joined(value, ", ", [](const auto& element) { return value_text(element); }) + "]";
  } else if constexpr (std::is_same_v<Value, std::filesystem::path>) {
    return config::toml_text(value.empty() ? value : std::filesystem::absolute(value));
  } else {
    return config::toml_text(value);
  }
}

// Returns "key = value", or "# key =" without a value.
std::string assignment(const OptionRef& option) {
  const auto text_of = []<class Value>(const Value* value) -> std::optional<std::string> {
    if constexpr (requires { value->has_value(); }) {
      return *value ? std::optional(value_text(**value)) : std::nullopt;
    } else {
      return value_text(*value);
    }
  };
  const std::optional<std::string> value = std::visit(text_of, option.value);
  const std::string key = config::toml_key(option.name);
  if (!value) return "# " + key + " =";
  if (!is_utf8(*value)) {
    throw ConfigError(
        {.place = "option '" + option.name + "'", .found = "the text is not UTF-8, which TOML cannot hold"});
  }
  return key + " = " + *value;
}

// Returns a value without quotes; empty for an option without one.
template <class Value>
std::string plain_text(const Value& value) {
  if constexpr (requires { value.has_value(); }) {
    return value ? plain_text(*value) : "";
  } else if constexpr (std::is_same_v<Value, std::string>) {
    return value;
  } else if constexpr (std::is_same_v<Value, std::filesystem::path>) {
    return value.string();
  } else if constexpr (config::OptionArray<Value>) {
    return joined(value, ", ", [](const auto& element) { return plain_text(element); });
  } else if constexpr (std::is_same_v<Value, TextsByName>) {
    return value.by_name.empty() ? plain_text(value.all) : config::toml_text(value);
  } else if constexpr (std::is_same_v<Value, double>) {
    return number_text(value);
  } else {
    return config::toml_text(value);
  }
}

// "norm of the gradients; >= 0"
std::string comment(const FieldNotes& notes) {
  std::string text = notes.doc;
  for (const std::string& part : {config::range_text(notes), config::choices_text(notes, " | ")}) {
    if (!part.empty()) text += (text.empty() ? "" : "; ") + part;
  }
  return one_line(text);
}

// "[model]", or "[[optimizer.groups]]" for optimizer.groups[0]
std::string header(const std::string& table) {
  if (!table.ends_with(']')) return "[" + table + "]";
  return "[[" + table.substr(0, table.rfind('[')) + "]]";
}

std::vector<std::string> section_lines(const ConfigSection& section) {
  std::vector<std::string> lines;
  if (!section.doc.empty()) lines.push_back("# " + one_line(section.doc));
  if (!section.table.empty()) lines.push_back(header(section.table));
  std::vector<std::pair<std::string, std::string>> rows;
  std::size_t width = 0;
  for (const OptionRef& option : section.options.refs()) {
    const auto& [left, right] = rows.emplace_back(assignment(option), comment(option.notes));
    if (left.size() <= kMaxAligned) width = std::max(width, left.size());
  }
  for (const auto& [left, right] : rows) {
    const std::string gap(width - std::min(width, left.size()) + 2, ' ');
    lines.push_back(right.empty() ? left : left + gap + "# " + right);
  }
  return lines;
}

std::vector<std::string> value_lines(const ConfigSection& section) {
  std::vector<std::string> lines;
  if (!section.table.empty()) lines.push_back(header(section.table));
  for (const OptionRef& option : section.options.refs())
    if (std::string line = assignment(option); !line.starts_with('#')) lines.push_back(std::move(line));
  return lines;
}

}  // namespace

std::string print_values(std::span<const ConfigSection> sections) {
  std::string text;
  for (const bool top_level : {true, false})
    for (const ConfigSection& section : sections) {
      if (section.table.empty() != top_level || !section.enabled) continue;
      for (const std::string& line : value_lines(section)) text += line + '\n';
    }
  return text;
}

std::string print_config(std::span<const ConfigSection> sections) {
  std::string text;
  for (const bool top_level : {true, false}) {  // after a [table], keys cannot be at the top level
    for (const ConfigSection& section : sections) {
      if (section.table.empty() != top_level) continue;
      if (!text.empty()) text += '\n';
      for (const std::string& line : section_lines(section))
        text += (section.enabled ? "" : "# ") + line + '\n';
    }
  }
  return text;
}

std::vector<std::pair<std::string, std::string>> value_texts(const OptionSet& options) {
  std::vector<std::pair<std::string, std::string>> texts;
  for (const OptionRef& option : options.refs())
    texts.emplace_back(option.name,
                       std::visit([](const auto* value) { return plain_text(*value); }, option.value));
  return texts;
}

}  // namespace kindling
