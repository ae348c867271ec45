#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "kindling/base/export.h"
#include "kindling/config/count_or_fraction.h"
#include "kindling/config/numbers_or_word.h"
#include "kindling/config/texts_by_name.h"

namespace kindling::config {

// Returns the text without spaces and tabs at its ends.
std::string_view trimmed(std::string_view text);

// Return values in TOML's form; reading them back gives equal values. Control characters are escaped, so the
// texts are also suitable for messages. Text that is not UTF-8 keeps its bytes.
KINDLING_API std::string toml_text(bool value);
KINDLING_API std::string toml_text(std::int64_t value);
KINDLING_API std::string toml_text(double value);
std::string toml_text(const CountOrFraction& value);
std::string toml_text(const NumbersOrWord& value);
std::string toml_text(const TextsByName& value);
std::string toml_text(const TextMap& value);
KINDLING_API std::string toml_text(std::string_view value);
KINDLING_API std::string toml_text(const std::string& value);
KINDLING_API std::string toml_text(const std::filesystem::path& value);

// Returns a key, quoted if necessary.
std::string toml_key(std::string_view key);

}  // namespace kindling::config
