#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "kindling/formats/safetensors.h"

// Shared by the reader and the writer of safetensors.
namespace kindling {

inline constexpr std::size_t kLengthBytes = 8;
inline constexpr std::size_t kMaxHeaderBytes = 100'000'000;  // the format's own limit
inline constexpr std::string_view kMetadataKey = "__metadata__";

std::optional<TensorType> type_named(std::string_view name);

// Returns nullopt for a negative size, or if the number of bytes overflows.
std::optional<std::size_t> bytes_of(TensorType type, std::span<const std::int64_t> shape);

// For a file of `file_bytes` whose first bytes are `start`. Throws CheckpointError, as all functions here.
std::size_t checked_header_bytes(std::string_view start, std::size_t file_bytes, const std::string& place);

// Everything but the values has been validated.
SafetensorsIndex parse_header(std::string_view header, std::size_t file_bytes, const std::string& place);

}  // namespace kindling
