#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <string>

namespace kindling {

// Bytes of a file or in memory that are read in pieces.
struct ByteSource {
  std::size_t size = 0;
  std::function<void(std::size_t offset, void* out, std::size_t size)> read{};  // must be within `size`
};

ByteSource source_of(const std::filesystem::path& path);
ByteSource source_of_bytes(std::string bytes);

}  // namespace kindling
