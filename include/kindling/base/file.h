#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "kindling/base/export.h"

// File input and output. All functions throw Error with the path, the system's reason and a hint.
namespace kindling {

class FileDescriptor;  // of an open file

// Returns the bytes of a regular file or a pipe. Rejects directories and devices, and checks `max_bytes`
// before it allocates.
KINDLING_API std::string read_file(const std::filesystem::path& path, std::size_t max_bytes);

// A regular file that is read in pieces, so that a large one needs no memory of its size. Several threads may
// use it at once.
class KINDLING_API InputFile {
 public:
  explicit InputFile(std::filesystem::path path);  // rejects anything but a regular file

  const std::filesystem::path& path() const noexcept { return path_; }
  std::size_t size() const noexcept { return size_; }  // bytes, when it was opened
  // Copies `size` bytes from `offset` on. Throws if the file ends before that.
  void read(std::size_t offset, void* out, std::size_t size) const;
  // Returns the bytes as private memory, which outlives this object: the system reads a page when it is first
  // used, and does not write changes to the file. The file may be replaced or deleted meanwhile, but not
  // changed or shortened in place: the system ends a process that uses a page beyond the new end. Returns
  // nullptr if the file cannot be mapped.
  std::shared_ptr<char> map() const;

 private:
  std::filesystem::path path_;
  std::shared_ptr<const FileDescriptor> file_;
  std::size_t size_;
};

// Replaces the contents of a file atomically. After it returns, the file holds exactly `bytes`, even after a
// power loss. If it throws, the file is unchanged (or already has its new contents, if only making the new
// name durable failed). Goes through `.name.tmp.<pid>` in the same directory, which must exist.
KINDLING_API void write_file_atomically(const std::filesystem::path& path, std::string_view bytes);
// The same for bytes in pieces, which are written one after another.
KINDLING_API void write_file_atomically(const std::filesystem::path& path,
                                        std::span<const std::string_view> pieces);

// Makes a file that other code has written survive a power loss, with its name. Does nothing if there is
// none.
KINDLING_API void make_file_durable(const std::filesystem::path& path);

// Deletes the temporary files that write_file_atomically() has left in the folder in processes that were
// killed: those of the file `name`, or of all files. Ignores errors. To be called before this process writes.
KINDLING_API void delete_stale_temporary_files(const std::filesystem::path& folder,
                                               std::string_view name = {}) noexcept;

// A file of lines that only grows. Not thread-safe.
class KINDLING_API AppendFile {
 public:
  // Opens or creates the file. Removes an incomplete last line, which a killed process may leave.
  explicit AppendFile(const std::filesystem::path& path);

  // Appends whole lines, each ended by '\n'. When it returns the system has them (they survive this process,
  // but not a power loss). If it throws, none of `lines` is left in the file.
  void append(std::string_view lines);
  // When it returns, everything appended survives a power loss too. Writes the file again if it has been
  // removed since it was opened, and continues in the file that has replaced it, if any; both are logged.
  void sync();
  // Truncates the file to its first `size` bytes. Throws if no line ends there.
  void cut_to(std::size_t size);

 private:
  void restore();

  std::filesystem::path path_;
  std::shared_ptr<const FileDescriptor> file_;
  bool has_durable_name_ = false;
};

// An exclusive lock on a directory, among all threads and processes, for the lifetime of the object. A
// process that dies releases its lock. Leaves a file `.lock` in the directory.
class KINDLING_API FolderLock {
 public:
  // Throws Error that names the process holding the lock, or says why the directory cannot be locked.
  explicit FolderLock(const std::filesystem::path& folder);
  // Returns nothing where another process, or another object in this one, has the lock. Throws as above.
  static std::optional<FolderLock> if_free(const std::filesystem::path& folder);

  // Takes the lock again where its file has been removed, which the app log then reports. Throws Error where
  // another process has taken the lock in the meantime.
  void renew();

 private:
  FolderLock(std::filesystem::path folder, std::shared_ptr<const FileDescriptor> file);

  std::filesystem::path folder_;
  std::shared_ptr<const FileDescriptor> file_;
};

}  // namespace kindling
