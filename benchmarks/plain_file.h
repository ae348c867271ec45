#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <string_view>

namespace kindling_bench {

// File access without any extras, as a lower bound. Both throw kindling::Error.

// Write, fsync, rename.
void write_plainly(const std::filesystem::path& path, std::string_view bytes);

struct PlainBytes {
  std::unique_ptr<char[]> bytes;
  std::size_t size;
};

// Into one fresh buffer.
PlainBytes read_plainly(const std::filesystem::path& path);

}  // namespace kindling_bench
