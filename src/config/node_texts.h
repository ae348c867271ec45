#pragma once

#include <optional>
#include <string>

#include "config/config_tree.h"
#include "kindling/config/texts_by_name.h"

// Values of a config that consist of texts. std::nullopt: it is another value.
namespace kindling::config {

bool is_one_value(const ConfigNode& node);  // no table and no array

// Returns the string of a value; for overrides also the text of a number or a date, because quotes are a
// burden in a shell.
std::optional<std::string> as_string(const ConfigNode& node);

// A string, an array of them, or a table of either: ["?"], {age = ["-1"]}.
std::optional<TextsByName> texts_by_name_in(const ConfigNode& node);

// A table of strings: {old = "new"}.
std::optional<TextMap> text_map_in(const ConfigNode& node);

}  // namespace kindling::config
