#include "kindling/config/reader.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <string>
#include <type_traits>
#include <unordered_set>
#include <utility>
#include <vector>

#include "config/config_tree.h"
#include "config/findings.h"
#include "config/hints.h"
#include "config/node_texts.h"
#include "config/option_checks.h"
#include "config/toml_text.h"
#include "kindling/base/suggest.h"
#include "kindling/config/options.h"

namespace kindling::config {
namespace {

constexpr std::size_t kMaxShownStringBytes = 80;

// "the string \"1e-3\"", "an array of 3 values"
std::string found_text(const ConfigNode& node) {
  const auto text_of = []<class Value>(const Value& value) -> std::string {
    if constexpr (std::is_same_v<Value, bool>) {
      return toml_text(value);
    } else if constexpr (std::is_same_v<Value, std::string>) {
      if (value.size() > kMaxShownStringBytes)
        return "a string of " + std::to_string(value.size()) + " bytes";
      return "the string " + toml_text(value);
    } else if constexpr (std::is_arithmetic_v<Value>) {
      return (std::is_integral_v<Value> ? "the integer " : "the number ") + toml_text(value);
    } else if constexpr (std::is_same_v<Value, ConfigDate>) {
      return "the date or time " + value.text;
    } else if constexpr (std::is_same_v<Value, ConfigArray>) {
      return "an array of " + std::to_string(value.size()) + (value.size() == 1 ? " value" : " values");
    } else {
      return "a table";
    }
  };
  return std::visit(text_of, node.value);
}

// An error in a value, or in one of its elements.
struct Mismatch {
  const ConfigNode* node;
  std::string element{};  // "[2]"
  std::string text;       // "expected …, found …"
};

// True if the string would be a value of the expected type without its quotes.
template <class Scalar>
bool reads_as(const std::string& text) {
  if constexpr (std::is_same_v<Scalar, bool>) {
    return text == "true" || text == "false";
  } else if constexpr (std::is_arithmetic_v<Scalar>) {
    Scalar number{};
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    return !text.empty() && error == std::errc() && end == text.data() + text.size();
  } else {
    return false;
  }
}

// "0.003" of "0,003"; the text itself without exactly one comma
std::string with_decimal_point(std::string text) {
  const std::size_t comma = text.find(',');
  if (comma != std::string::npos && comma == text.rfind(',')) text[comma] = '.';
  return text;
}

// "0.1" of ".1", "1.0" of "1."
std::string with_both_digits(std::string text) {
  if (text.ends_with('.')) return text + "0";
  const std::size_t first = text.find('.');
  return text.insert(first, "0");
}

// Returns a hint for a value of the wrong type, if there is an obvious one.
template <class Scalar>
std::string remedy(const ConfigNode& node) {
  if (const auto* text = std::get_if<std::string>(&node.value)) {
    const bool lacks_digit = text->find_first_of("0123456789") != std::string::npos &&
                             (text->ends_with('.') || text->find('.') == text->find_first_not_of("+-"));
    if (std::is_same_v<Scalar, double> && reads_as<Scalar>(*text) && lacks_digit)
      return " (write digits on both sides of the decimal point: " + with_both_digits(*text) + ")";
    if (reads_as<Scalar>(*text)) return " (drop the quotes)";
    if constexpr (std::is_same_v<Scalar, double>) {
      const std::string with_point = with_decimal_point(*text);
      if (reads_as<double>(with_point)) return " (write a decimal point: " + with_point + ")";
    }
    return "";
  }
  if constexpr (std::is_same_v<Scalar, NumbersOrWord>)
    return is_one_value(node) ? " (put it in brackets)" : "";
  if constexpr (OptionTable<Scalar>) return "";
  return is_one_value(node) && !std::is_arithmetic_v<Scalar> ? " (put it in quotes)" : "";
}

template <class Scalar>
std::optional<Scalar> scalar_in(const ConfigNode& node) {
  if constexpr (std::is_same_v<Scalar, std::string>) {
    return as_string(node);
  } else if constexpr (std::is_same_v<Scalar, CountOrFraction>) {
    if (const auto* count = std::get_if<std::int64_t>(&node.value)) return *count;
    const auto* share = std::get_if<double>(&node.value);
    return share == nullptr ? std::nullopt : std::optional<CountOrFraction>(*share);
  } else if constexpr (std::is_same_v<Scalar, TextsByName>) {
    return texts_by_name_in(node);
  } else if constexpr (std::is_same_v<Scalar, TextMap>) {
    return text_map_in(node);
  } else if constexpr (std::is_same_v<Scalar, NumbersOrWord>) {
    if (const auto* word = std::get_if<std::string>(&node.value)) return *word;
    const auto* items = std::get_if<ConfigArray>(&node.value);
    if (items == nullptr) return std::nullopt;
    NumbersOrWord list;
    for (const ConfigNode& item : *items) {
      const std::optional<double> number = scalar_in<double>(item);
      if (!number) return std::nullopt;
      list.numbers.push_back(*number);
    }
    return list;
  } else if constexpr (std::is_same_v<Scalar, std::filesystem::path>) {
    const std::optional<std::string> text = as_string(node);
    if (!text || text->empty()) return text;  // an empty path means none, not the folder
    return (node.place.source->base_dir / *text).lexically_normal();
  } else {
    if (const auto* value = std::get_if<Scalar>(&node.value)) return *value;
    if constexpr (std::is_same_v<Scalar, double>) {
      if (const auto* integer = std::get_if<std::int64_t>(&node.value)) return static_cast<double>(*integer);
    }
    return std::nullopt;
  }
}

template <class Scalar>
std::optional<Mismatch> convert(const ConfigNode& node, Scalar& value) {
  if (std::optional<Scalar> found = scalar_in<Scalar>(node)) {
    value = *std::move(found);
    return std::nullopt;
  }
  // The range does not matter yet: the type is the problem.
  const std::string wanted = wanted_text<Scalar>(FieldNotes{});
  return Mismatch{.node = &node,
                  .text = "expected " + wanted + ", found " + found_text(node) + remedy<Scalar>(node)};
}

// "integers", "strings"
template <class Scalar>
std::string plural() {
  const std::string one = wanted_text<Scalar>(FieldNotes{});
  return one.substr(one.find(' ') + 1) + "s";
}

template <OptionArray Array>
std::optional<Mismatch> convert(const ConfigNode& node, Array& values) {
  constexpr bool takes_any_size = requires { values.resize(1); };
  if constexpr (std::is_same_v<Array, std::vector<std::string>> ||
                std::is_same_v<Array, std::vector<std::filesystem::path>>) {
    // A single name may stand for a list of one.
    if (std::holds_alternative<std::string>(node.value)) {
      values.resize(1);
      return convert(node, values.front());
    }
  }
  const auto* items = std::get_if<ConfigArray>(&node.value);
  if (items == nullptr || (!takes_any_size && items->size() != values.size())) {
    const std::string count = takes_any_size ? "" : std::to_string(values.size()) + " ";
    return Mismatch{.node = &node,
                    .text = "expected an array of " + count + plural<typename Array::value_type>() +
                            ", found " + found_text(node)};
  }
  if constexpr (takes_any_size) values.resize(items->size());
  for (std::size_t i = 0; i < items->size(); ++i) {
    if (auto mismatch = convert((*items)[i], values[i])) {
      mismatch->element = "[" + std::to_string(i) + "]";
      return mismatch;
    }
  }
  return std::nullopt;
}

template <class Value>
std::optional<Mismatch> convert(const ConfigNode& node, std::optional<Value>& value) {
  return convert(node, value.emplace());
}

// Returns the first scalar that the option's notes do not allow.
template <class Value>
std::optional<Mismatch> check(const ConfigNode& node, const Value& value, const FieldNotes& notes) {
  std::optional<Mismatch> first;
  for_each_scalar(value, [&]<class Scalar>(const Scalar& scalar, std::optional<std::size_t> index) {
    if (first || allowed(scalar, notes)) return;
    const bool in_array = index && std::holds_alternative<ConfigArray>(node.value);
    first.emplace(
        Mismatch{.node = in_array ? &std::get<ConfigArray>(node.value)[*index] : &node,
                 .element = in_array ? "[" + std::to_string(*index) + "]" : "",
                 .text = "expected " + wanted_instead_of(scalar, notes) + ", found " + toml_text(scalar)});
  });
  return first;
}

// Returns a string or an integer as the user wrote it, to look for a suggestion.
std::optional<std::string> word_of(const ConfigNode& node) {
  if (const auto* number = std::get_if<std::int64_t>(&node.value)) return std::to_string(*number);
  return as_string(node);
}

// Returns the word for an unquoted `true`, if it is one of the choices.
std::optional<std::string> word_in(const ConfigNode& node, const FieldNotes& notes) {
  const auto* flag = std::get_if<bool>(&node.value);
  const std::string word = flag == nullptr ? "" : toml_text(*flag);
  return !word.empty() && !choices_of(notes).empty() && is_choice(word, notes) ? std::optional(word)
                                                                               : std::nullopt;
}

// Copies a value into an option. If it has another type or is not allowed, leaves the option unchanged and
// returns the error. `path` names the option in messages.
std::optional<Finding> read_value(const ConfigNode& node, const std::string& path, const OptionRef& option,
                                  const OtherNames& other_names) {
  const auto read = [&]<class Value>(Value* target) -> std::optional<Mismatch> {
    Value value{};
    if constexpr (std::is_same_v<Value, std::string>) {
      if (std::optional<std::string> word = word_in(node, option.notes)) {
        *target = *std::move(word);
        return std::nullopt;
      }
    }
    std::optional<Mismatch> mismatch = convert(node, value);
    if (!mismatch) mismatch = check(node, value, option.notes);
    if (!mismatch) *target = std::move(value);
    return mismatch;
  };
  const std::optional<Mismatch> mismatch = std::visit(read, option.value);
  if (!mismatch) return std::nullopt;
  Finding finding{.place = mismatch->node->place,
                  .text = "'" + path + mismatch->element + "': " + mismatch->text};
  if (const std::optional<std::string> text = word_of(*mismatch->node)) {
    std::string guess = other_names.value_for(path, *text);
    if (guess.empty()) guess = nearest(*text, choices_of(option.notes));
    if (!guess.empty()) finding.hint = "did you mean " + toml_text(guess) + "?";
  }
  // The message already contains a scalar.
  finding.shows_line = !finding.hint.empty() || !is_one_value(*mismatch->node);
  return finding;
}

}  // namespace
}  // namespace kindling::config

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

// "groups" and 0 of "groups[0]"
std::pair<std::string_view, std::optional<std::size_t>> split_index(std::string_view key) {
  const std::size_t bracket = key.ends_with(']') ? key.rfind('[') : std::string_view::npos;
  if (bracket == std::string_view::npos) return {key, std::nullopt};
  std::size_t index = 0;
  std::from_chars(key.data() + bracket + 1, key.data() + key.size() - 1, index);
  return {key.substr(0, bracket), index};
}

// A table is identified by its key, which a table in an array does not have.
ConfigPlace place_of(const ConfigNode& node) {
  const bool has_key = node.key_place.source != nullptr;
  return has_key && std::holds_alternative<ConfigTable>(node.value) ? node.key_place : node.place;
}

std::string at_index(const std::string& array, std::size_t index) {
  return array + "[" + std::to_string(index) + "]";
}

// Returns the node of a key, or of a table in an array of tables; null if it is missing.
const ConfigNode* child_of(const ConfigTable& table, std::string_view key) {
  const auto [name, index] = split_index(key);
  const auto entry = table.find(name);
  if (entry == table.end()) return nullptr;
  if (!index) return entry->second.get();
  const auto* items = std::get_if<ConfigArray>(&entry->second->value);
  return items != nullptr && *index < items->size() ? &(*items)[*index] : nullptr;
}

}  // namespace

struct ConfigReader::State {
  explicit State(const ConfigTree& document) : tree(document) {}

  void add(config::Finding finding) { findings.push_back(std::move(finding)); }

  // Returns the node at a path, or null. `nearest` gets the last existing node on the way.
  const ConfigNode* find(std::string_view path, const ConfigNode** nearest = nullptr) const {
    const ConfigTable* table = &tree.root;
    while (true) {
      const std::size_t dot = std::min(path.find('.'), path.size());
      const ConfigNode* node = child_of(*table, path.substr(0, dot));
      if (node == nullptr) return nullptr;
      if (nearest != nullptr) *nearest = node;
      if (dot == path.size()) return node;
      table = std::get_if<ConfigTable>(&node->value);
      if (table == nullptr) return nullptr;
      path.remove_prefix(dot + 1);
    }
  }

  // Marks a path as known: a candidate for "did you mean", and its tables too.
  void know(std::string_view path) {
    for (; !path.empty(); path = split_last(path).first) {
      const auto [table, last] = split_last(path);
      const std::string_view key = split_index(last).first;
      std::vector<std::string>& keys = known[std::string(table)];
      if (std::find(keys.begin(), keys.end(), key) == keys.end()) keys.emplace_back(key);
      const ConfigNode* node = find(path);
      if (node != nullptr && std::holds_alternative<ConfigTable>(node->value)) known_tables.insert(node);
    }
  }

  // Returns the table, or null if it is absent or not a table (which adds an error). `has_name`: the table
  // has a key `name`, which a string in its place is likely to be.
  const ConfigTable* table_at(std::string_view path, bool has_name) {
    if (path.empty()) return &tree.root;
    know(path);
    const ConfigNode* node = find(path);
    if (node == nullptr) return nullptr;
    const auto* table = std::get_if<ConfigTable>(&node->value);
    if (table == nullptr && done.insert(node).second) {
      const bool is_name = has_name && std::holds_alternative<std::string>(node->value);
      add({.place = node->key_place,
           .text = "'" + std::string(path) + "': expected a table, found " + config::found_text(*node),
           .hint = is_name ? "did you mean '" + std::string(path) + ".name'?" : ""});
    }
    return table;
  }

  void add_unread(const ConfigTable& table, const std::string& path) {
    for (const auto& [key, node] : table) {
      if (done.contains(node.get())) continue;
      const std::string name = join(path, config::toml_key(key));
      const auto* inner = std::get_if<ConfigTable>(&node->value);
      if (known_tables.contains(node.get())) {
        if (inner != nullptr)
          add_unread(*inner, name);
        else
          add_unread_items(std::get<ConfigArray>(node->value), name);
        continue;
      }
      const auto hint = unknown_hints.find(name);
      add({.place = node->key_place,
           .text = std::string("unknown ") + (inner == nullptr ? "key '" : "table '") + name + "'",
           .hint =
               hint != unknown_hints.end()
                   ? hint->second
                   : config::hint_for({.table = path, .key = key, .is_override = node->key_place.line == 0},
                                      known, other_names)});
    }
  }

  void add_unread_items(const ConfigArray& tables, const std::string& path) {
    for (std::size_t i = 0; i < tables.size(); ++i)
      if (!done.contains(&tables[i])) add_unread(std::get<ConfigTable>(tables[i].value), at_index(path, i));
  }

  const ConfigTree& tree;
  config::KeysByTable known;                           // table → keys and tables in it
  std::unordered_set<const ConfigNode*> known_tables;  // or arrays of tables: their keys may still be unread
  std::unordered_set<const ConfigNode*> done;          // read, with all that is in it
  std::vector<config::Finding> findings;
  config::OtherNames other_names;
  std::map<std::string, std::string> unknown_hints;  // of keys by path
};

ConfigReader::ConfigReader(const ConfigDocument& document)
    : state_(std::make_unique<State>(*document.tree_)) {}
ConfigReader::~ConfigReader() = default;

void ConfigReader::read(std::string_view table, const OptionSet& options) {
  const bool has_name = std::any_of(options.refs().begin(), options.refs().end(),
                                    [](const OptionRef& option) { return option.name == "name"; });
  const ConfigTable* present = state_->table_at(table, has_name);
  for (const OptionRef& option : options.refs()) {
    const std::string path = join(table, option.name);
    state_->know(path);
    if (present == nullptr) continue;
    const auto entry = present->find(option.name);
    if (entry == present->end()) continue;
    const bool is_new = state_->done.insert(entry->second.get()).second;
    auto finding = config::read_value(*entry->second, path, option, state_->other_names);
    if (finding && is_new) state_->add(*std::move(finding));
  }
}

bool ConfigReader::has(std::string_view path) const {
  state_->know(path);
  return state_->find(path) != nullptr;
}

std::size_t ConfigReader::num_tables(std::string_view path) {
  state_->know(path);
  const ConfigNode* node = state_->find(path);
  if (node == nullptr) return 0;
  const auto is_table = [](const ConfigNode& item) {
    return std::holds_alternative<ConfigTable>(item.value);
  };
  const auto* items = std::get_if<ConfigArray>(&node->value);
  if (items != nullptr && std::all_of(items->begin(), items->end(), is_table)) {
    state_->known_tables.insert(node);
    return items->size();
  }
  if (state_->done.insert(node).second)
    state_->add({.place = node->key_place,
                 .text = "'" + std::string(path) + "': expected tables, [[" + std::string(path) +
                         "]], found " + config::found_text(*node)});
  return 0;
}

std::size_t ConfigReader::num_errors() const noexcept { return state_->findings.size(); }

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
    finding.place = place_of(*node);
  } else if (close != nullptr) {
    finding.place = close->key_place.source != nullptr ? close->key_place : close->place;
  } else if (!state_->tree.sources.empty()) {
    finding.place.source = state_->tree.sources.back().get();
  }
  const std::optional<std::string> value = node == nullptr ? std::nullopt : config::as_string(*node);
  std::string guess = value ? state_->other_names.value_for(std::string(path), *value) : "";
  if (std::find(candidates.begin(), candidates.end(), guess) == candidates.end())
    guess = value ? nearest(*value, candidates) : "";
  if (!guess.empty()) {
    finding.hint = "did you mean '" + guess + "'?";
  } else if (!candidates.empty()) {
    finding.hint = "available: " + list_names(candidates);
  }
  state_->add(std::move(finding));
}

void ConfigReader::add_key_hint(std::string_view other, std::string_view path) {
  state_->other_names.keys.emplace(config::OtherNames::spelling(other), path);
}

void ConfigReader::add_value_hint(std::string_view path, std::string_view other, std::string_view value) {
  state_->other_names.values.emplace(std::pair(std::string(path), config::OtherNames::spelling(other)),
                                     value);
}

void ConfigReader::add_unknown_hint(std::string_view path, std::string_view hint) {
  state_->unknown_hints.emplace(path, hint);
}

void ConfigReader::skip(std::string_view path) {
  if (path.empty())
    for (const auto& [key, node] : state_->tree.root) state_->done.insert(node.get());
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
