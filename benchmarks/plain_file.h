#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <string_view>

namespace kindling_bench {

// Files as a program has them that does no more than it must. Both throw kindling::Error.

// Write, fsync, rename.
void write_plainly(const std::filesystem::path& path, std::string_view bytes);

struct PlainBytes {
  std::unique_ptr<char[]> bytes;
  std::size_t size;
};

// Into one fresh buffer.
PlainBytes read_plainly(const std::filesystem::path& path);

}  // namespace kindling_bench
