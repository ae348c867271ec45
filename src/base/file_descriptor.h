#pragma once

#include <cerrno>
#include <cstddef>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "kindling/base/file.h"

// What reading and writing of files share.
namespace kindling {

// Makes a system call again for as long as signals interrupt it.
template <class Call>
auto without_interruptions(Call call) {
  auto result = call();
  while (result < 0 && errno == EINTR) result = call();
  return result;
}

// Of an open file or folder, closed in the end.
class FileDescriptor {
 public:
  FileDescriptor(const std::filesystem::path& path, int flags);  // ok() tells how it went, else errno
  ~FileDescriptor();
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;

  bool ok() const { return value_ >= 0; }
  int get() const { return value_; }
  int close();  // now: 0, or the error number, as some file systems report a failed write only here

 private:
  int value_;
};

// Throws Error; `action` is "open", "write" …, `needed_bytes` is told when space is the matter.
[[noreturn]] void fail_on_file(const std::filesystem::path& path, const std::string& action, int code,
                               std::size_t needed_bytes = 0);

// Throws Error when it cannot be opened.
std::shared_ptr<const FileDescriptor> opened(const std::filesystem::path& path, int flags);

// All of `bytes`: 0, or the error number.
int write_all(int descriptor, std::string_view bytes);
// 0, or the error number.
int sync_to_disk(int descriptor);

}  // namespace kindling
