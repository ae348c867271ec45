#pragma once

#include <string>
#include <string_view>

#include "kindling/base/checksum.h"
#include "kindling/formats/safetensors.h"

// Checksums of a file, in two entries of its metadata: that of the header, computed with its own digits as
// zeros, and those of the tensors' values in the order of the file, concatenated.
namespace kindling {

inline constexpr std::string_view kHeaderChecksumKey = "xxh3.header";
inline constexpr std::string_view kTensorChecksumsKey = "xxh3.tensors";
inline constexpr std::size_t kChecksumDigits = 16;
// A header with checksums starts with this and the header's digits, so that these need not be searched for.
inline constexpr std::string_view kCheckedHeaderStart = R"({"__metadata__":{"xxh3.header":")";

// Returns the checksum of a whole header that starts like that.
std::string checksum_of_header(std::string_view header);

// Throws CheckpointError if the header has a checksum that does not match.
void check_header(std::string_view header, const std::string& place);

// Moves the checksums from the metadata of an index to its tensors. Throws CheckpointError if they do not
// have the form that a writer produces.
void take_checksums(std::string_view header, SafetensorsIndex& index, const std::string& place);

// Throws CheckpointError if the values, which `checksum` has been updated with, do not match.
void check_values(const TensorEntry& entry, const Checksum& checksum, const std::string& place);

}  // namespace kindling
