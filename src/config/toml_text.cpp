#include "config/toml_text.h"

#include <algorithm>

#include "base/joined.h"
#include "base/utf8.h"
#include "kindling/base/number_text.h"

namespace kindling::config {
namespace {

std::string escaped(std::int32_t control) {
  if (control == '\n') return "\\n";
  if (control == '\t') return "\\t";
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  const auto code = static_cast<std::size_t>(control);
  return {'\\', 'u', '0', '0', kDigits[code >> 4U], kDigits[code & 0xFU]};
}

}  // namespace

std::string_view trimmed(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

std::string toml_text(bool value) { return value ? "true" : "false"; }

std::string toml_text(std::int64_t value) { return std::to_string(value); }

std::string toml_text(double value) {
  const std::string text = number_text(value);
  const bool is_integer = text.find_first_of(".en") == std::string::npos;  // as TOML readers see it
  return is_integer ? text + ".0" : text;
}

std::string toml_text(const CountOrFraction& value) {
  if (value.is_fraction()) return toml_text(value.number());
  return toml_text(static_cast<std::int64_t>(value.number()));
}

std::string toml_text(const NumbersOrWord& value) {
  if (!value.word.empty()) return toml_text(value.word);
  return "[" + joined(value.numbers, ", ", [](double number) { return toml_text(number); }) + "]";
}

std::string toml_text(const TextsByName& value) {
  const auto list = [](const std::vector<std::string>& texts) {
    return "[" + joined(texts, ", ", [](const std::string& text) { return toml_text(text); }) + "]";
  };
  if (value.by_name.empty()) return list(value.all);
  return "{" +
         joined(value.by_name, ", ",
                [&](const auto& one) { return toml_key(one.first) + " = " + list(one.second); }) +
         "}";
}

std::string toml_text(const TextMap& value) {
  return "{" +
         joined(value, ", ",
                [](const auto& one) { return toml_key(one.first) + " = " + toml_text(one.second); }) +
         "}";
}

std::string toml_text(std::string_view value) {
  std::string text = "\"";
  for_each_character(value, [&](const Utf8Character& character, std::string_view bytes) {
    if (character.is_control()) {
      text += escaped(character.code);
    } else {
      if (bytes == "\"" || bytes == "\\") text += '\\';
      text += bytes;
    }
  });
  return text + '"';
}

std::string toml_text(const std::string& value) { return toml_text(std::string_view(value)); }

std::string toml_text(const std::filesystem::path& value) {
  return toml_text(std::string_view(value.native()));
}

std::string toml_key(std::string_view key) {
  const auto is_bare = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
  };
  const bool bare = !key.empty() && std::all_of(key.begin(), key.end(), is_bare);
  return bare ? std::string(key) : toml_text(key);
}

}  // namespace kindling::config
