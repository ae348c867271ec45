#include "kindling/config/document.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "base/error_kind.h"
#include "base/utf8.h"
#include "config/config_tree.h"
#include "config/toml_text.h"
#include "kindling/base/error.h"
#include "kindling/base/file.h"
#include "kindling/base/suggest.h"
#include "kindling/base/text.h"

namespace kindling::config {
namespace {

// A value that is not TOML is taken as a string, which must still be valid in TOML.
void check_text(std::string_view text, const ConfigSource& source) {
  for_each_character(text, [&](const Utf8Character& character, std::string_view) {
    const bool is_control = character.is_control() && character.code != '\t';
    if (character.bytes > 0 && !is_control) return;
    throw ConfigError({.place = source.name,
                       .found = is_control ? "it contains a control character" : "the text is not UTF-8"});
  });
}

// Returns the parts of "trainer.max_epochs".
std::vector<std::string> split_key(std::string_view key, const ConfigSource& source) {
  std::vector<std::string> parts;
  for (bool more = true; more;) {
    const std::size_t end = std::min(key.find('.'), key.size());
    more = end < key.size();
    parts.emplace_back(key.substr(0, end));
    key.remove_prefix(more ? end + 1 : end);
    if (toml_key(parts.back()) != parts.back()) {
      throw ConfigError(
          {.place = source.name,
           .found = "the key must consist of letters, digits, '_' and '-', with dots between tables",
           .wanted = "table.key=value"});
    }
  }
  if (parts.size() > ConfigDocument::kMaxDepth) {
    throw ConfigError({.place = source.name, .found = "the key is nested too deeply"});
  }
  return parts;
}

// An override has no lines: every place is the override as a whole.
void move_places(ConfigNode& node, const ConfigSource& source) {
  node.place = node.key_place = {.source = &source};
  if (auto* items = std::get_if<ConfigArray>(&node.value)) {
    for (ConfigNode& item : *items) move_places(item, source);
  } else if (auto* table = std::get_if<ConfigTable>(&node.value)) {
    for (auto& [key, child] : *table) move_places(*child, source);
  }
}

// Returns the TOML value of the text; nothing if it is not TOML.
std::optional<ConfigNode> toml_value(std::string_view text) {
  // In an inline table, neither a comment nor a second key can follow the value.
  const ConfigSource source{"", "", "v = { v = " + std::string(text) + " }"};
  try {
    ConfigTable outer = parse_toml(source);
    auto& inner = std::get<ConfigTable>(outer.at("v")->value);
    if (inner.size() == 1) return std::move(*inner.at("v"));
  } catch (const ConfigError&) {
    // Most likely a bare word; the caller decides.
  }
  return std::nullopt;
}

ConfigNode value_of(std::string_view text, const ConfigSource& source) {
  std::optional<ConfigNode> node = toml_value(text);
  if (!node) {
    if (!text.empty() && std::string_view("[{\"'").find(text.front()) != std::string_view::npos) {
      const char first = text.front();
      const bool is_open = (first == '"' || first == '\'') && (text.size() == 1 || text.back() != first);
      throw ConfigError({.place = source.name,
                         .found = is_open ? std::string("the string has no closing ") + first
                                          : "the value is not TOML, or is nested too deeply",
                         .remedy = is_open ? "close it, or write the value without quotes" : ""});
    }
    node.emplace().value = std::string(text);
  } else if (!std::holds_alternative<std::string>(node->value)) {
    node->written = text;
  }
  move_places(*node, source);
  return std::move(*node);
}

// Returns the tree of one override, "trainer.max_epochs=3". The source, which is named after it, must outlive
// the tree's places. Throws ConfigError.
ConfigTable parse_override(const std::string& assignment, const ConfigSource& source) {
  check_text(assignment, source);
  const std::size_t equals = assignment.find('=');
  if (equals == std::string::npos) {
    throw ConfigError({.place = source.name, .found = "'=' is missing", .wanted = "table.key=value"});
  }
  const std::vector<std::string> parts = split_key(trimmed(assignment.substr(0, equals)), source);
  auto node = std::make_unique<ConfigNode>(value_of(trimmed(assignment.substr(equals + 1)), source));
  for (std::size_t i = parts.size(); --i > 0;) {
    ConfigTable around;
    around.emplace(parts[i], std::move(node));
    node = std::make_unique<ConfigNode>(ConfigNode{.value = std::move(around)});
    node->place = node->key_place = {.source = &source};
  }
  ConfigTable root;
  root.emplace(parts.front(), std::move(node));
  return root;
}

}  // namespace
}  // namespace kindling::config

namespace kindling {
namespace {

void merge_tables(ConfigTable& into, ConfigTable from) {
  for (auto& [key, later] : from) {
    std::unique_ptr<ConfigNode>& present = into[key];
    auto* into_table = present ? std::get_if<ConfigTable>(&present->value) : nullptr;
    auto* from_table = std::get_if<ConfigTable>(&later->value);
    if (into_table != nullptr && from_table != nullptr) {
      merge_tables(*into_table, std::move(*from_table));
    } else {
      present = std::move(later);
    }
  }
}

// Returns "did you mean 'configs/digits.toml'?" for a file in the same folder or in configs/; empty if none
// is near.
std::string nearest_file(const std::filesystem::path& file) {
  const std::string stem = file.stem().string();
  for (const std::filesystem::path& folder : {file.parent_path(), std::filesystem::path("configs")}) {
    std::vector<std::string> stems;
    std::error_code ignored;
    for (const auto& entry : std::filesystem::directory_iterator(folder.empty() ? "." : folder, ignored))
      if (entry.path().extension() == ".toml") stems.push_back(entry.path().stem().string());
    std::sort(stems.begin(), stems.end());
    const bool is_there = std::binary_search(stems.begin(), stems.end(), stem);
    const std::string guess = is_there ? stem : nearest(stem, stems);
    if (!guess.empty()) return "did you mean '" + (folder / (guess + ".toml")).string() + "'?";
  }
  return {};
}

std::string read_text(const std::filesystem::path& file) {
  std::error_code ignored;
  if (std::filesystem::is_directory(file, ignored)) {
    throw ConfigError({.place = file.string(), .found = "this is a folder", .wanted = "a TOML file"});
  }
  if (std::filesystem::status(file, ignored).type() == std::filesystem::file_type::not_found)
    throw ConfigError({.place = file.string(),
                       .found = "no such file",
                       .wanted = "a config file (TOML)",
                       .remedy = nearest_file(file)});
  return with_errors_as<ConfigError>([&] { return read_file(file, ConfigDocument::kMaxBytes); });
}

}  // namespace

ConfigDocument::ConfigDocument() : tree_(std::make_unique<ConfigTree>()) {}
ConfigDocument::~ConfigDocument() = default;
ConfigDocument::ConfigDocument(ConfigDocument&& other) noexcept = default;
ConfigDocument& ConfigDocument::operator=(ConfigDocument&& other) noexcept = default;

ConfigDocument ConfigDocument::load(const std::filesystem::path& file) {
  const std::string text = read_text(file);
  return parse(text, file.string(), std::filesystem::absolute(file).parent_path());
}

ConfigDocument ConfigDocument::parse(std::string_view text, std::string_view name,
                                     std::filesystem::path base_dir) {
  const auto source = std::make_shared<const ConfigSource>(
      ConfigSource{one_line(name), std::move(base_dir), std::string(text)});
  ConfigDocument document;
  document.tree_->root = config::parse_toml(*source);
  document.tree_->sources.push_back(source);
  return document;
}

void ConfigDocument::merge(ConfigDocument later) {
  merge_tables(tree_->root, std::move(later.tree_->root));
  std::move(later.tree_->sources.begin(), later.tree_->sources.end(), std::back_inserter(tree_->sources));
}

void ConfigDocument::set(std::string_view assignment, std::string_view source) {
  const std::string text(assignment);
  const auto origin = std::make_shared<const ConfigSource>(
      ConfigSource{std::string(source) + ": " + one_line(text), std::filesystem::current_path()});
  merge_tables(tree_->root, config::parse_override(text, *origin));
  tree_->sources.push_back(origin);
}

}  // namespace kindling
