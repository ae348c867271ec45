#pragma once

#include <span>
#include <string>

#include "kindling/base/export.h"
#include "kindling/config/options.h"

namespace kindling {

// One table of a printed config. Each table is printed once: OptionSet::append joins what shares one.
struct ConfigSection {
  // Dotted; empty for the keys at the top. "optimizer.groups[1]" is the second table of an array of tables,
  // which are given in their order.
  std::string table = "";
  std::string doc = "";
  OptionSet options{};
  bool enabled = true;  // false: printed commented out, as for a table that is off unless it is there
};

// TOML text with the options' present values and a comment on each (doc, unit, range, choices), in the given
// order but the top-level keys first. Loading it gives equal options; unset optionals are printed as
// "# key =", relative std::filesystem::path values are printed absolute.
// Throws ConfigError for text that is not UTF-8, which TOML cannot hold.
KINDLING_API std::string print_config(std::span<const ConfigSection> sections);

// Returns a Markdown table with a row per option: key, type with its range or choices, present value (for
// fresh options the default), and description.
KINDLING_API std::string options_table(const OptionSet& options);

}  // namespace kindling
