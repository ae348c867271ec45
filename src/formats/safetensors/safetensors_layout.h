#pragma once

#include <cstddef>
#include <string>
#include <string_view>

// Shared by the reader and the writer of safetensors. All functions throw CheckpointError.
namespace kindling {

inline constexpr std::size_t kLengthBytes = 8;
inline constexpr std::size_t kMaxHeaderBytes = 100'000'000;  // the format's own limit
inline constexpr std::string_view kMetadataKey = "__metadata__";

// Checksums of a file, in two entries of its metadata: that of the header, computed with its own digits as
// zeros, and those of the tensors' values in the order of the file, concatenated.
inline constexpr std::string_view kHeaderChecksumKey = "xxh3.header";
inline constexpr std::string_view kTensorChecksumsKey = "xxh3.tensors";
inline constexpr std::size_t kChecksumDigits = 16;
// A header with checksums starts with this and the header's digits, so that these need not be searched for.
inline constexpr std::string_view kCheckedHeaderStart = R"({"__metadata__":{"xxh3.header":")";

// Returns the bytes of the header of a file of `file_bytes` whose first bytes are `start`.
std::size_t checked_header_bytes(std::string_view start, std::size_t file_bytes, const std::string& place);

// Returns the checksum of a whole header that starts like that.
std::string checksum_of_header(std::string_view header);

}  // namespace kindling
