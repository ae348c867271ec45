#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "kindling/base/export.h"
#include "kindling/config/count_or_fraction.h"
#include "kindling/config/numbers_or_word.h"
#include "kindling/config/option_policy.h"
#include "kindling/config/texts_by_name.h"

namespace kindling {

// The properties of one option in a field list, besides its name and its member.
struct FieldNotes {
  const char* doc = "";  // one clause, no full stop: "widths of the hidden layers"
  // Range of a number, or of each number of an array; the bounds themselves are allowed unless excluded.
  double min = -std::numeric_limits<double>::infinity();
  double max = std::numeric_limits<double>::infinity();
  bool min_excluded = false;
  bool max_excluded = false;
  bool infinity_allowed = false;  // +-inf passes the checks; NaN never does
  const char* choices = "";       // "norm|value": the strings allowed; empty: any
  OptionPolicy policy{};          // of a trainer's options
  const char* example = "";       // a value as in TOML, for `kindling help`; needed if the default shows none
};

// A pointer to an option's value; its alternatives are the types that an option may have.
using OptionPointer =
    std::variant<bool*, std::int64_t*, double*, CountOrFraction*, NumbersOrWord*, TextsByName*, TextMap*,
                 std::string*, std::filesystem::path*, std::vector<std::int64_t>*, std::vector<double>*,
                 std::vector<std::string>*, std::vector<std::filesystem::path>*, std::array<std::int64_t, 2>*,
                 std::array<double, 2>*, std::optional<bool>*, std::optional<std::int64_t>*,
                 std::optional<double>*, std::optional<CountOrFraction>*, std::optional<std::string>*,
                 std::optional<std::filesystem::path>*, std::optional<std::array<std::int64_t, 2>>*,
                 std::optional<std::array<double, 2>>*>;

template <class Value>
concept OptionValue = std::constructible_from<OptionPointer, Value*>;

// One option: a member and its properties.
template <class Struct, class Value>
struct Field {
  const char* name;
  Value Struct::*member;
  FieldNotes notes;
};

// Returns a Field with deduced types.
template <class Struct, class Value>
constexpr Field<Struct, Value> field(const char* name, Value Struct::*member, FieldNotes notes = {}) {
  static_assert(
      OptionValue<Value>,
      "an option is a bool, std::int64_t (for int), double (for float), std::string or "
      "std::filesystem::path, or a std::optional, std::vector or std::array of them, or a table, as in "
      "OptionPointer");
  return {name, member, notes};
}

// A field with its index, so that two fields of the same type are distinct base classes.
template <std::size_t index, class Struct, class Value>
struct FieldAt {
  Field<Struct, Value> field;
};

// Returned by `fields`. Compiles faster than std::tuple; every file that includes an option struct pays for
// it.
template <class Indices, class... Fields>
struct FieldList;

// The fields are bases, one for each index.
template <std::size_t... indices, class... Structs, class... Values>
struct FieldList<std::index_sequence<indices...>, Field<Structs, Values>...>
    : FieldAt<indices, Structs, Values>... {
  static constexpr std::size_t size = sizeof...(indices);

  // Calls `visit` with each field, in order.
  template <class Visit>
  constexpr void for_each(const Visit& visit) const {
    (visit(FieldAt<indices, Structs, Values>::field), ...);
  }
};

// The field list of an option struct, an aggregate whose members all have initialisers:
//
//   struct MlpOptions {
//     std::vector<std::int64_t> hidden{256};
//     static constexpr auto fields = kindling::fields(
//         kindling::field("hidden", &MlpOptions::hidden, {.doc = "widths of the hidden layers", .min = 1}));
//   };
//
// Reading, checking and printing use it; write it once per struct. A long one may be the `list` of another
// struct: using Fields = MlpFields.
template <class... Structs, class... Values>
constexpr FieldList<std::index_sequence_for<Structs...>, Field<Structs, Values>...> fields(
    const Field<Structs, Values>&... list) {
  return {{list}...};
}

template <class Options>
concept OptionStruct = requires {
  std::remove_cvref_t<decltype(Options::fields)>::size;
}
|| requires { std::remove_cvref_t<decltype(Options::Fields::list)>::size; };

// Fails at compile time, with a readable message, if `Options` is not an option struct.
template <class Options>
constexpr void require_fields() {
  static_assert(OptionStruct<Options>,
                "an option struct lists its options: static constexpr auto fields = "
                "kindling::fields(kindling::field(\"lr\", &MyOptions::lr), ...)");
}

// Returns the field list of an option struct.
template <class Options>
constexpr const auto& fields_of() {
  require_fields<Options>();
  if constexpr (requires { Options::fields; })
    return Options::fields;
  else
    return Options::Fields::list;
}

// For products without options.
struct NoOptions {
  static constexpr auto fields = kindling::fields();
};

// One option of an object: its name and notes, and a pointer into the object.
struct OptionRef {
  std::string name;
  FieldNotes notes;
  OptionPointer value;
};

// The options of one table of the config, of one object or of several. Holds pointers into the objects: they
// must outlive it and must not move.
class KINDLING_API OptionSet {
 public:
  OptionSet() = default;

  template <class Options>
  static OptionSet of(Options& options) {
    OptionSet set;
    fields_of<Options>().for_each([&](const auto& field) {
      set.add({field.name, field.notes, OptionPointer(&(options.*field.member))});
    });
    return set;
  }

  // Both throw ConfigError if a name is already in the set.
  void add(OptionRef option);
  void append(const OptionSet& other);

  const std::vector<OptionRef>& refs() const noexcept { return refs_; }

 private:
  std::vector<OptionRef> refs_;
};

// Checks options that were set in code as the config does. Throws ConfigError for the first option out of its
// range, outside its choices or not finite. `place` names the owner of the options in messages: "Trainer".
KINDLING_API void validate(const OptionSet& options, std::string_view place);

template <class Options>
void validate(const Options& options, std::string_view place) {
  Options copy = options;  // an OptionSet points to mutable objects
  validate(OptionSet::of(copy), place);
}

}  // namespace kindling
