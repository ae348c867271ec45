#pragma once

#include <string>
#include <string_view>

#include "kindling/base/checksum.h"
#include "kindling/formats/safetensors.h"

// Checksums that a file carries in two entries of its metadata: that of the header, taken with its own digits
// as zeros, and those of the tensors' values in the order of the file, one after the other.
namespace kindling {

inline constexpr std::string_view kHeaderChecksumKey = "xxh3.header";
inline constexpr std::string_view kTensorChecksumsKey = "xxh3.tensors";
inline constexpr std::size_t kChecksumDigits = 16;
// A header with checksums starts with this and its own digits, so that these need not be searched for.
inline constexpr std::string_view kCheckedHeaderStart = R"({"__metadata__":{"xxh3.header":")";

// Of a whole header that starts so.
std::string checksum_of_header(std::string_view header);

// Throws CheckpointError when the header has a checksum that does not match.
void check_header(std::string_view header, const std::string& place);

// Moves the checksums from the metadata of an index to its tensors. Throws CheckpointError when they are not
// what a writer makes.
void take_checksums(std::string_view header, SafetensorsIndex& index, const std::string& place);

// Throws CheckpointError when the values, which `checksum` has seen, are not what was written.
void check_values(const TensorEntry& entry, const Checksum& checksum, const std::string& place);

}  // namespace kindling
