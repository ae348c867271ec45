#pragma once

#include <filesystem>
#include <memory>
#include <string_view>

#include "kindling/base/export.h"

namespace kindling {

class FileDescriptor;

// Replaces a file atomically by one that is written in parts, also by a library that needs a path. Goes
// through the same temporary file as write_file_atomically(). Not thread-safe. All functions throw Error.
class KINDLING_API FileReplacement {
 public:
  // Writes nothing yet.
  explicit FileReplacement(std::filesystem::path path);
  // Deletes the temporary file unless finish() has succeeded; the file at `path` is then unchanged.
  ~FileReplacement();
  FileReplacement(const FileReplacement&) = delete;
  FileReplacement& operator=(const FileReplacement&) = delete;

  const std::filesystem::path& path() const noexcept { return path_; }
  // Returns the path that other code writes, instead of append(), and has closed when finish() is called.
  const std::filesystem::path& temporary_path() const noexcept { return temporary_; }
  // Creates the temporary file at the first call, and appends bytes to it.
  void append(std::string_view bytes);
  // Makes the temporary file durable and gives it its name. If it throws, the file at `path` is unchanged (or
  // already has its new contents, if only making the new name durable failed).
  void finish();

 private:
  std::filesystem::path path_, temporary_;
  std::shared_ptr<FileDescriptor> file_;
  bool is_finished_ = false;
};

}  // namespace kindling
