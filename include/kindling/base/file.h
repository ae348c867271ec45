#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>

#include "kindling/base/export.h"

// Whole files in and out. All of it throws Error that names the path, the system's reason and what to do.
namespace kindling {

// The bytes of a regular file or a pipe. Refuses folders and devices, and more than `max_bytes` before it
// allocates for them.
KINDLING_API std::string read_file(const std::filesystem::path& path, std::size_t max_bytes);

// After it returns, the file holds exactly `bytes`, a power loss notwithstanding; when it throws, the file is
// what it was. Goes through `.name.tmp.<pid>` in the same folder, which must exist.
KINDLING_API void write_file_atomically(const std::filesystem::path& path, std::string_view bytes);

// A file of lines that only grows. Not thread-safe.
class KINDLING_API AppendFile {
 public:
  // Opens or creates the file. A last line without an end, as a killed process leaves it, is cut off.
  explicit AppendFile(std::filesystem::path path);
  ~AppendFile();
  AppendFile(const AppendFile&) = delete;
  AppendFile& operator=(const AppendFile&) = delete;

  // Adds whole lines, each ended by '\n'. The system has them when it returns (they survive this process, not
  // a power loss). When it throws, none of `lines` is left in the file.
  void append(std::string_view lines);

 private:
  std::filesystem::path path_;
  int descriptor_;
};

}  // namespace kindling
