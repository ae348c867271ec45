#include "config/value_reader.h"

#include <charconv>
#include <type_traits>
#include <utility>

#include "config/option_checks.h"
#include "config/toml_text.h"
#include "kindling/base/suggest.h"

namespace kindling::config {
namespace {

constexpr std::size_t kMaxShownStringBytes = 80;

bool is_one_value(const ConfigNode& node) {
  return !std::holds_alternative<ConfigTable>(node.value) && !std::holds_alternative<ConfigArray>(node.value);
}

// What is wrong with a value, or with one element of it.
struct Mismatch {
  const ConfigNode* node;
  std::string element{};  // "[2]"
  std::string text;       // "expected …, found …"
};

// Whether the string would be a value of the wanted type if it had no quotes.
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

// What to do about a value of the wrong type, where that is plain.
template <class Scalar>
std::string remedy(const ConfigNode& node) {
  if (const auto* text = std::get_if<std::string>(&node.value)) {
    return reads_as<Scalar>(*text) ? " (drop the quotes)" : "";
  }
  return is_one_value(node) && !std::is_arithmetic_v<Scalar> ? " (put it in quotes)" : "";
}

template <class Scalar>
std::optional<Scalar> scalar_in(const ConfigNode& node) {
  if constexpr (std::is_same_v<Scalar, std::string>) {
    return as_string(node);
  } else if constexpr (std::is_same_v<Scalar, Portion>) {
    if (const auto* count = std::get_if<std::int64_t>(&node.value)) return *count;
    const auto* share = std::get_if<double>(&node.value);
    return share == nullptr ? std::nullopt : std::optional<Portion>(*share);
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
  // The range does not matter yet: "expected a number" is what helps.
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

// The first scalar that the option's notes do not allow.
template <class Value>
std::optional<Mismatch> check(const ConfigNode& node, const Value& value, const FieldNotes& notes) {
  std::optional<Mismatch> first;
  for_each_scalar(value, [&]<class Scalar>(const Scalar& scalar, std::optional<std::size_t> index) {
    if (first || allowed(scalar, notes)) return;
    first.emplace(
        Mismatch{.node = index ? &std::get<ConfigArray>(node.value)[*index] : &node,
                 .element = index ? "[" + std::to_string(*index) + "]" : "",
                 .text = "expected " + wanted_instead_of(scalar, notes) + ", found " + toml_text(scalar)});
  });
  return first;
}

// What `true` says without quotes where it is one of the words to choose from.
std::optional<std::string> word_in(const ConfigNode& node, const FieldNotes& notes) {
  const auto* flag = std::get_if<bool>(&node.value);
  const std::string word = flag == nullptr ? "" : toml_text(*flag);
  return !word.empty() && !choices_of(notes).empty() && is_choice(word, notes) ? std::optional(word)
                                                                               : std::nullopt;
}

}  // namespace

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

std::optional<std::string> as_string(const ConfigNode& node) {
  if (const auto* text = std::get_if<std::string>(&node.value)) return *text;
  if (!node.written.empty() && is_one_value(node)) return node.written;
  return std::nullopt;
}

std::optional<Finding> read_value(const ConfigNode& node, const std::string& path, const OptionRef& option) {
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
  const auto* text = std::get_if<std::string>(&mismatch->node->value);
  if (text != nullptr) {
    const std::string guess = nearest(*text, choices_of(option.notes));
    if (!guess.empty()) finding.hint = "did you mean " + toml_text(guess) + "?";
  }
  // A scalar stands in the message already.
  finding.shows_line = !finding.hint.empty() || !is_one_value(*mismatch->node);
  return finding;
}

}  // namespace kindling::config
