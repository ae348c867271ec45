#pragma once

#include <cerrno>
#include <cstddef>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "kindling/base/file.h"

// Shared by reading and writing of files.
namespace kindling {

// Repeats a system call as long as signals interrupt it.
template <class Call>
auto without_interruptions(Call call) {
  auto result = call();
  while (result < 0 && errno == EINTR) result = call();
  return result;
}

// The descriptor of an open file or directory, closed by the destructor.
class FileDescriptor {
 public:
  FileDescriptor(const std::filesystem::path& path, int flags);  // check ok(); else see errno
  ~FileDescriptor();
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;

  bool ok() const { return value_ >= 0; }
  int get() const { return value_; }
  int close();  // closes it now; returns 0, or the error number: some file systems report a failed write only
                // here

 private:
  int value_;
};

// Throws Error; `action` is "open", "write" …, `needed_bytes` is reported if space is the problem.
[[noreturn]] void fail_on_file(const std::filesystem::path& path, const std::string& action, int code,
                               std::size_t needed_bytes = 0);

// Throws Error if it cannot be opened.
std::shared_ptr<const FileDescriptor> opened(const std::filesystem::path& path, int flags);

// Returns whether the path still leads to the open file. False: it has been removed or replaced.
bool is_at_path(const FileDescriptor& file, const std::filesystem::path& path);

// Writes all of `bytes`; returns 0, or the error number.
int write_all(int descriptor, std::string_view bytes);
// Returns 0, or the error number.
int sync_to_disk(int descriptor);

}  // namespace kindling
