#include "kindling/config/reader.h"

#include <algorithm>
#include <map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "config/config_tree.h"
#include "config/findings.h"
#include "config/toml_text.h"
#include "config/value_reader.h"
#include "kindling/base/suggest.h"

namespace kindling {
namespace {

std::string join(std::string_view table, std::string_view key) {
  return table.empty() ? std::string(key) : std::string(table) + "." + std::string(key);
}

// "a.b" and "c" of "a.b.c"
std::pair<std::string_view, std::string_view> split_last(std::string_view path) {
  const std::size_t dot = path.rfind('.');
  if (dot == std::string_view::npos) return {"", path};
  return {path.substr(0, dot), path.substr(dot + 1)};
}

}  // namespace

struct ConfigReader::State {
  explicit State(const ConfigTree& document) : tree(document) {}

  void add(config::Finding finding) { findings.push_back(std::move(finding)); }

  // The node at a path, or null. `nearest` gets the last node on the way that is there.
  const ConfigNode* find(std::string_view path, const ConfigNode** nearest = nullptr) const {
    const ConfigTable* table = &tree.root;
    while (true) {
      const std::size_t dot = std::min(path.find('.'), path.size());
      const auto entry = table->find(path.substr(0, dot));
      if (entry == table->end()) return nullptr;
      const ConfigNode* node = entry->second.get();
      if (nearest != nullptr) *nearest = node;
      if (dot == path.size()) return node;
      table = std::get_if<ConfigTable>(&node->value);
      if (table == nullptr) return nullptr;
      path.remove_prefix(dot + 1);
    }
  }

  // Makes a path one that can be asked for: a candidate for "did you mean", and its tables known.
  void know(std::string_view path) {
    for (; !path.empty(); path = split_last(path).first) {
      const auto [table, key] = split_last(path);
      std::vector<std::string>& keys = known[std::string(table)];
      if (std::find(keys.begin(), keys.end(), key) == keys.end()) keys.emplace_back(key);
      const ConfigNode* node = find(path);
      if (node != nullptr && std::holds_alternative<ConfigTable>(node->value)) known_tables.insert(node);
    }
  }

  // The table, or null when it is absent or no table, which is an error then.
  const ConfigTable* table_at(std::string_view path) {
    if (path.empty()) return &tree.root;
    know(path);
    const ConfigNode* node = find(path);
    if (node == nullptr) return nullptr;
    const auto* table = std::get_if<ConfigTable>(&node->value);
    if (table == nullptr && done.insert(node).second) {
      add({.place = node->key_place,
           .text = "'" + std::string(path) + "': expected a table, found " + config::found_text(*node)});
    }
    return table;
  }

  std::string hint_for(const std::string& table, const std::string& key) const {
    const auto here = known.find(table);
    const std::string guess = here == known.end() ? "" : nearest(key, here->second);
    if (!guess.empty()) return "did you mean '" + guess + "'?";
    for (const auto& [other, keys] : known) {
      const bool is_there = std::find(keys.begin(), keys.end(), key) != keys.end();
      if (is_there && other != table) return "did you mean '" + join(other, key) + "'?";
    }
    return "";
  }

  void add_unread(const ConfigTable& table, const std::string& path) {
    for (const auto& [key, node] : table) {
      if (done.contains(node.get())) continue;
      const std::string name = join(path, config::toml_key(key));
      const auto* inner = std::get_if<ConfigTable>(&node->value);
      if (inner != nullptr && known_tables.contains(node.get())) {
        add_unread(*inner, name);
        continue;
      }
      add({.place = node->key_place,
           .text = std::string("unknown ") + (inner == nullptr ? "key '" : "table '") + name + "'",
           .hint = hint_for(path, key)});
    }
  }

  const ConfigTree& tree;
  std::map<std::string, std::vector<std::string>, std::less<>> known;  // table → keys and tables in it
  std::unordered_set<const ConfigNode*> known_tables;                  // their keys may still be unread
  std::unordered_set<const ConfigNode*> done;                          // read, with all that is in it
  std::vector<config::Finding> findings;
};

ConfigReader::ConfigReader(const ConfigDocument& document)
    : state_(std::make_unique<State>(*document.tree_)) {}
ConfigReader::~ConfigReader() = default;

void ConfigReader::read(std::string_view table, const OptionSet& options) {
  const ConfigTable* present = state_->table_at(table);
  for (const OptionRef& option : options.refs()) {
    const std::string path = join(table, option.name);
    state_->know(path);
    if (present == nullptr) continue;
    const auto entry = present->find(option.name);
    if (entry == present->end()) continue;
    const bool is_new = state_->done.insert(entry->second.get()).second;
    auto finding = config::read_value(*entry->second, path, option);
    if (finding && is_new) state_->add(*std::move(finding));
  }
}

bool ConfigReader::has(std::string_view path) const {
  state_->know(path);
  return state_->find(path) != nullptr;
}

std::optional<std::string> ConfigReader::read_name(std::string_view path) {
  std::optional<std::string> name;
  const auto [table, key] = split_last(path);
  OptionSet options;
  options.add({std::string(key), {}, &name});
  read(table, options);
  return name;
}

void ConfigReader::error(std::string_view path, const std::string& text,
                         std::span<const std::string> candidates) {
  const ConfigNode* close = nullptr;
  const ConfigNode* node = state_->find(path, &close);
  config::Finding finding{.place = {}, .text = text};
  if (node != nullptr) {
    finding.place = std::holds_alternative<ConfigTable>(node->value) ? node->key_place : node->place;
  } else if (close != nullptr) {
    finding.place = close->key_place;
  } else if (!state_->tree.sources.empty()) {
    finding.place.source = state_->tree.sources.back().get();
  }
  const std::optional<std::string> value = node == nullptr ? std::nullopt : config::as_string(*node);
  const std::string guess = value ? nearest(*value, candidates) : "";
  if (!guess.empty()) {
    finding.hint = "did you mean '" + guess + "'?";
  } else if (!candidates.empty()) {
    finding.hint = "there are: " + list_names(candidates);
  }
  state_->add(std::move(finding));
}

void ConfigReader::skip(std::string_view path) {
  if (const ConfigNode* node = state_->find(path)) state_->done.insert(node);
}

void ConfigReader::finish() {
  state_->add_unread(state_->tree.root, "");
  if (state_->findings.empty()) return;
  std::vector<const ConfigSource*> sources;
  for (const auto& source : state_->tree.sources) sources.push_back(source.get());
  config::throw_findings(std::move(state_->findings), sources);
}

}  // namespace kindling
