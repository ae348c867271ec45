#include <optional>
#include <type_traits>
#include <utility>

#include "base/joined.h"
#include "config/option_checks.h"
#include "config/toml_text.h"
#include "kindling/base/text.h"
#include "kindling/config/printer.h"

namespace kindling {
namespace {

std::string in_backticks(const std::string& text) { return "`" + text + "`"; }

// Escapes characters that Markdown or its tables would interpret.
std::string markdown_cell(const std::string& text) {
  std::string escaped;
  for (const char character : one_line(text)) {
    if (character == '|' || character == '*' || character == '<') escaped += '\\';
    escaped += character;
  }
  return escaped;
}

// "integer", "numbers"
template <class Scalar>
std::string type_name(bool is_plural) {
  const char* ending = is_plural ? "s" : "";
  if constexpr (std::is_same_v<Scalar, bool>) return std::string("boolean") + ending;
  if constexpr (std::is_same_v<Scalar, std::int64_t>) return std::string("integer") + ending;
  if constexpr (std::is_same_v<Scalar, double>) return std::string("number") + ending;
  if constexpr (std::is_same_v<Scalar, std::filesystem::path>) return std::string("path") + ending;
  if constexpr (std::is_same_v<Scalar, CountOrFraction>) return "integer, or fraction up to 1.0";
  if constexpr (std::is_same_v<Scalar, NumbersOrWord>) return "array of numbers";
  if constexpr (std::is_same_v<Scalar, TextsByName>) return "array of strings, or table of arrays";
  if constexpr (std::is_same_v<Scalar, TextMap>) return "table of strings";
  return std::string("string") + ending;
}

template <class Value>
std::string type_name_of(const Value& value) {
  if constexpr (requires { value.has_value(); }) {
    return type_name_of(typename Value::value_type{});
  } else if constexpr (config::OptionArray<Value>) {
    constexpr bool has_any_size = requires(Value & values) { values.resize(1); };
    return "array of " + (has_any_size ? "" : std::to_string(value.size()) + " ") +
           type_name<typename Value::value_type>(/*is_plural=*/true);
  } else {
    return type_name<Value>(/*is_plural=*/false);
  }
}

// "number > 0"
std::string plain_type(const OptionRef& option) {
  const std::string range = config::range_text(option.notes);
  const auto name_of = [](const auto* value) { return type_name_of(*value); };
  return std::visit(name_of, option.value) + (range.empty() ? "" : " " + range);
}

// "number > 0", "`\"min\"`, `\"max\"`", "array of numbers, or `\"balanced\"`"
std::string type_cell(const OptionRef& option) {
  const std::vector<std::string> choices = config::choices_of(option.notes);
  if (std::holds_alternative<NumbersOrWord*>(option.value) && !choices.empty())
    return markdown_cell(plain_type(option)) + ", or " + joined(choices, ", ", [](const std::string& choice) {
             return in_backticks(config::toml_text(choice));
           });
  if (!choices.empty())
    return joined(choices, ", ",
                  [](const std::string& choice) { return in_backticks(config::toml_text(choice)); });
  return markdown_cell(plain_type(option));
}

template <class Value>
std::string default_text(const Value& value) {
  if constexpr (requires { value.has_value(); }) {
    return value ? default_text(*value) : "";
  } else if constexpr (config::OptionArray<Value>) {
    return "[" + joined(value, ", ", [](const auto& element) { return default_text(element); }) + "]";
  } else {
    return config::toml_text(value);
  }
}

std::string plain_default(const OptionRef& option) {
  return std::visit([](const auto* value) { return default_text(*value); }, option.value);
}

std::string default_cell(const OptionRef& option) {
  const std::string text = plain_default(option);
  return text.empty() ? "absent" : in_backticks(text);
}

std::string description_cell(const FieldNotes& notes) {
  const bool may_change = notes.policy.on_resume == OptionPolicy::OnResume::may_change;
  return markdown_cell(notes.doc) + (may_change ? " (may change on resume)" : "");
}

}  // namespace

OptionText describe(const OptionRef& option) {
  const std::vector<std::string> choices = config::choices_of(option.notes);
  const auto quoted = [](const std::string& choice) { return config::toml_text(choice); };
  const std::string words = joined(choices, ", ", quoted);
  const bool may_be_numbers = std::holds_alternative<NumbersOrWord*>(option.value);
  OptionText text{
      .type = choices.empty()  ? plain_type(option)
              : may_be_numbers ? plain_type(option) + ", or " + words
                               : words,
      .default_value = plain_default(option),
      .choices = choices,
      .example = option.notes.example,
      .description = one_line(option.notes.doc),
      .may_change_on_resume = option.notes.policy.on_resume == OptionPolicy::OnResume::may_change};
  if (!text.example.empty()) return text;
  for (const std::string& choice : choices)
    if (text.example.empty() && quoted(choice) != text.default_value) text.example = quoted(choice);
  const bool shows_nothing =
      text.default_value == "\"\"" || text.default_value == "[]" || text.default_value == "{}";
  if (text.example.empty() && (text.default_value == "true" || text.default_value == "false"))
    text.example = text.default_value == "true" ? "false" : "true";
  if (text.example.empty() && !shows_nothing) text.example = text.default_value;
  return text;
}

std::string options_table(const OptionSet& options) {
  std::string table = "| key | type | default | description |\n|---|---|---|---|\n";
  for (const OptionRef& option : options.refs())
    table += "| " + in_backticks(option.name) + " | " + type_cell(option) + " | " + default_cell(option) +
             " | " + description_cell(option.notes) + " |\n";
  return table;
}

}  // namespace kindling
