#include "config/node_texts.h"

#include <utility>
#include <variant>
#include <vector>

namespace kindling::config {
namespace {

// A string, or an array of them.
std::optional<std::vector<std::string>> texts_in(const ConfigNode& node) {
  if (const std::optional<std::string> text = as_string(node)) return std::vector{*text};
  const auto* const items = std::get_if<ConfigArray>(&node.value);
  if (items == nullptr) return std::nullopt;
  std::vector<std::string> texts;
  for (const ConfigNode& item : *items) {
    const auto* const text = std::get_if<std::string>(&item.value);
    if (text == nullptr) return std::nullopt;
    texts.push_back(*text);
  }
  return texts;
}

}  // namespace

bool is_one_value(const ConfigNode& node) {
  return !std::holds_alternative<ConfigTable>(node.value) && !std::holds_alternative<ConfigArray>(node.value);
}

std::optional<std::string> as_string(const ConfigNode& node) {
  if (const auto* text = std::get_if<std::string>(&node.value)) return *text;
  if (!node.written.empty() && is_one_value(node)) return node.written;
  return std::nullopt;
}

std::optional<TextsByName> texts_by_name_in(const ConfigNode& node) {
  const auto* const table = std::get_if<ConfigTable>(&node.value);
  if (table == nullptr) return texts_in(node);
  TextsByName found;
  for (const auto& [name, item] : *table) {
    std::optional<std::vector<std::string>> texts = texts_in(*item);
    if (!texts) return std::nullopt;
    found.by_name[name] = *std::move(texts);
  }
  return found;
}

std::optional<TextMap> text_map_in(const ConfigNode& node) {
  const auto* const table = std::get_if<ConfigTable>(&node.value);
  if (table == nullptr) return std::nullopt;
  TextMap texts;
  for (const auto& [name, item] : *table) {
    std::optional<std::string> text = as_string(*item);
    if (!text) return std::nullopt;
    texts[name] = *std::move(text);
  }
  return texts;
}

}  // namespace kindling::config
