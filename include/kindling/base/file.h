#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "kindling/base/export.h"

// Files in and out. All of it throws Error that names the path, the system's reason and what to do.
namespace kindling {

class FileDescriptor;  // of an open file

// The bytes of a regular file or a pipe. Refuses folders and devices, and more than `max_bytes` before it
// allocates for them.
KINDLING_API std::string read_file(const std::filesystem::path& path, std::size_t max_bytes);

// A regular file that is read in pieces: a large one needs no memory of its size. It may be used by several
// threads at once.
class KINDLING_API InputFile {
 public:
  explicit InputFile(std::filesystem::path path);  // refuses what is no regular file

  const std::filesystem::path& path() const noexcept { return path_; }
  std::size_t size() const noexcept { return size_; }  // bytes, when it was opened
  // Copies `size` bytes from `offset` on. Throws when the file ends before.
  void read(std::size_t offset, void* out, std::size_t size) const;

 private:
  std::filesystem::path path_;
  std::shared_ptr<const FileDescriptor> file_;
  std::size_t size_;
};

// After it returns, the file holds exactly `bytes`, a power loss notwithstanding; when it throws, the file is
// what it was (or, when all that failed was to make its new name durable, what it shall be). At no time is it
// something in between. Goes through `.name.tmp.<pid>` in the same folder, which must exist.
KINDLING_API void write_file_atomically(const std::filesystem::path& path, std::string_view bytes);
// The same for bytes in pieces, which are written one after the other.
KINDLING_API void write_file_atomically(const std::filesystem::path& path,
                                        std::span<const std::string_view> pieces);

// A file of lines that only grows. Not thread-safe.
class KINDLING_API AppendFile {
 public:
  // Opens or creates the file. A last line without an end, as a killed process leaves it, is cut off.
  explicit AppendFile(std::filesystem::path path);

  // Adds whole lines, each ended by '\n'. The system has them when it returns (they survive this process, not
  // a power loss). When it throws, none of `lines` is left in the file.
  void append(std::string_view lines);
  // What has been appended survives a power loss, too, when it returns.
  void sync();
  // Leaves the first `size` bytes. Throws when no line ends there.
  void cut_to(std::size_t size);

 private:
  std::filesystem::path path_;
  std::shared_ptr<const FileDescriptor> file_;
  bool has_durable_name_ = false;
};

// Nobody else, in this process or another one, has a lock on this folder while it lives. A process that dies
// gives its lock back. The folder holds a file `.lock` from then on.
class KINDLING_API FolderLock {
 public:
  // Throws Error that names the process that has it, or says why there can be no lock.
  explicit FolderLock(const std::filesystem::path& folder);

 private:
  std::shared_ptr<const FileDescriptor> file_;
};

}  // namespace kindling
