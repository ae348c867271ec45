#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kindling/base/export.h"
#include "kindling/config/options.h"

namespace kindling {

// One table of a printed config. Each table is printed once: use OptionSet::append for options that share
// one.
struct ConfigSection {
  // Dotted; empty for the keys at the top level. "optimizer.groups[1]" is the second table of an array of
  // tables, which must be given in order.
  std::string table = "";
  std::string doc = "";
  OptionSet options{};
  bool enabled = true;  // false: printed commented out, as for an optional table that is absent
};

// Returns TOML text with the current values of the options and a comment on each (doc, unit, range, choices),
// in the given order but the top-level keys first. Loading it produces equal options. Unset optionals are
// printed as "# key =", relative std::filesystem::path values are printed absolute. Throws ConfigError for
// text that is not UTF-8, which TOML cannot represent.
KINDLING_API std::string print_config(std::span<const ConfigSection> sections);
// The same without comments: neither docs nor unset optionals nor disabled tables.
KINDLING_API std::string print_values(std::span<const ConfigSection> sections);

// Returns the current values of options as texts, by name and in their order, such as for
// Callback::shared_options(). Those without a value have an empty text.
KINDLING_API std::vector<std::pair<std::string, std::string>> value_texts(const OptionSet& options);
template <class Options>
std::vector<std::pair<std::string, std::string>> value_texts(const Options& options) {
  Options copy = options;  // an OptionSet points to mutable objects
  return value_texts(OptionSet::of(copy));
}

// The texts of `kindling help` about one option.
struct OptionText {
  std::string type;                  // "integer >= 1", "\"step\" or \"epoch\""
  std::string default_value;         // as in TOML; empty: the option is absent unless it is set
  std::vector<std::string> choices;  // the strings allowed, without quotes; empty: any value of the type
  std::string example;               // a value as in TOML; empty: neither the notes nor the default have one
  std::string description;
  bool may_change_on_resume = false;
};
// Returns the texts of one option, with its current value as the default.
KINDLING_API OptionText describe(const OptionRef& option);

// Returns a Markdown table with a row per option: key, type with its range or choices, current value (for
// fresh options the default), and description.
KINDLING_API std::string options_table(const OptionSet& options);

}  // namespace kindling
