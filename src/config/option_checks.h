#pragma once

#include <cmath>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "kindling/config/options.h"

namespace kindling::config {

// Returns "a|b|c" as a list; an empty one for "".
std::vector<std::string> choices_of(const FieldNotes& notes);

// Returns the choices in TOML's form, with `gap` between them.
std::string choices_text(const FieldNotes& notes, std::string_view gap);

// Returns ">= 1" or "> 0 and < 1"; empty without a range.
std::string range_text(const FieldNotes& notes);

// Returns "an array of numbers >= 0, or \"balanced\"".
std::string wanted_numbers_or_word(const FieldNotes& notes);

// Returns "a string", or the choices.
std::string wanted_string(const FieldNotes& notes);

bool in_range(double value, const FieldNotes& notes);
bool is_choice(const std::string& value, const FieldNotes& notes);

// An option with several values: a vector, or an array of two.
template <class Value>
concept OptionArray = requires(Value& value) {
  value.front();
}
&&!std::is_same_v<Value, std::string>;

// An option that is, or may be, a table with any keys.
template <class Value>
concept OptionTable = std::is_same_v<Value, TextsByName> || std::is_same_v<Value, TextMap>;

// Calls visit(scalar, index) for the values of an option: one, those of an array, or none if it is not set.
template <class Visit, class Value>
void for_each_scalar(const Value& value, Visit&& visit) {
  if constexpr (requires { value.has_value(); }) {
    if (value) for_each_scalar(*value, visit);
  } else if constexpr (std::is_same_v<Value, NumbersOrWord>) {
    if (!value.word.empty()) return visit(value, std::optional<std::size_t>());
    for_each_scalar(value.numbers, visit);
  } else if constexpr (OptionTable<Value>) {
    return;  // any texts
  } else if constexpr (OptionArray<Value>) {
    for (std::size_t i = 0; i < value.size(); ++i) {
      const typename Value::value_type scalar = value[i];
      visit(scalar, std::optional<std::size_t>(i));
    }
  } else {
    visit(value, std::optional<std::size_t>());
  }
}

// True if a scalar passes the checks of its option.
template <class Scalar>
bool allowed(const Scalar& value, const FieldNotes& notes) {
  if constexpr (std::is_same_v<Scalar, double>) {
    return !std::isnan(value) && (notes.infinity_allowed || std::isfinite(value)) && in_range(value, notes);
  } else if constexpr (std::is_same_v<Scalar, std::int64_t>) {
    return in_range(static_cast<double>(value), notes);
  } else if constexpr (std::is_same_v<Scalar, CountOrFraction>) {
    return value.is_fraction() ? value.number() > 0 && value.number() <= 1 : value.number() >= 1;
  } else if constexpr (std::is_same_v<Scalar, NumbersOrWord>) {
    return is_choice(value.word, notes);
  } else if constexpr (std::is_same_v<Scalar, std::string>) {
    return is_choice(value, notes);
  } else {
    return true;
  }
}

// Returns the expected form of a scalar of this type: "an integer >= 1", "one of \"norm\", \"value\"".
template <class Scalar>
std::string wanted_text(const FieldNotes& notes) {
  if constexpr (std::is_same_v<Scalar, bool>) return "true or false";
  if constexpr (std::is_same_v<Scalar, std::filesystem::path>) return "a path";
  if constexpr (std::is_same_v<Scalar, std::string>) return wanted_string(notes);
  if constexpr (std::is_same_v<Scalar, NumbersOrWord>) return wanted_numbers_or_word(notes);
  if constexpr (std::is_same_v<Scalar, TextMap>) return "a table of strings";
  if constexpr (std::is_same_v<Scalar, TextsByName>) return "an array of strings, or a table of such arrays";
  if constexpr (std::is_same_v<Scalar, CountOrFraction>)
    return "a fraction > 0 and <= 1.0 or an integer >= 1";
  const std::string range = range_text(notes);
  return std::string(std::is_integral_v<Scalar> ? "an integer" : "a number") + (range.empty() ? "" : " ") +
         range;
}

// Returns the expected form in place of a value that is not allowed.
template <class Scalar>
std::string wanted_instead_of(const Scalar& value, const FieldNotes& notes) {
  if constexpr (std::is_same_v<Scalar, double>) {
    if (!std::isfinite(value) && !notes.infinity_allowed) return "a finite number";
  }
  return wanted_text<Scalar>(notes);
}

}  // namespace kindling::config

namespace kindling {

// Copies the options whose policy `is_meant` accepts from one object to another.
template <class Options, class Predicate>
void copy_options_if(Options& to, const Options& from, const Predicate& is_meant) {
  fields_of<Options>().for_each([&](const auto& field) {
    if (is_meant(field.notes.policy)) to.*field.member = from.*field.member;
  });
}

}  // namespace kindling
