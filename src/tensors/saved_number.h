#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "kindling/formats/safetensors.h"

namespace kindling {

// Inclusive bounds of a saved number; an unset bound is not checked.
template <class Number>
struct SavedRange {
  std::optional<Number> min{}, max{};
};

// Returns the number that the whole of `text` spells. Throws CheckpointError that names `key`, the text and
// what was expected. For Number = std::int64_t and double, like all functions here.
template <class Number>
Number parse_saved_number(const std::string& text, const std::string& key,
                          const SavedRange<Number>& range = {});

// Returns the number that a state's metadata has under `key`, or nothing if the key is missing. Throws
// CheckpointError for a value that is not a number or lies outside the range.
template <class Number>
std::optional<Number> find_number(const Metadata& metadata, const std::string& key,
                                  const SavedRange<Number>& range = {});

// Like find_number, but a missing key is a CheckpointError, too.
template <class Number>
Number number_of(const Metadata& metadata, const std::string& key, const SavedRange<Number>& range = {});

}  // namespace kindling
