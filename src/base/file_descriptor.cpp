#include "base/file_descriptor.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <system_error>
#include <utility>

#include "base/file_operations.h"
#include "kindling/base/error.h"

namespace kindling {
namespace {

std::string remedy_for(const std::filesystem::path& path, int code) {
  std::error_code ignored;
  switch (code) {
    case ENOENT:
      return std::filesystem::is_directory(std::filesystem::absolute(path, ignored).parent_path(), ignored)
                 ? "check the path"
                 : "check the path; its folder must exist";
    case EACCES:
    case EPERM:
      return "check the permissions of the file and its folder";
    case EROFS:
      return "choose a folder on a writable file system";
    case ENOSPC:
    case EDQUOT:
      return "free some space or choose another folder";
    case EISDIR:
    case ENOTDIR:
      return "name a file in an existing folder";
    default:
      return "check the disk and try again";
  }
}

}  // namespace

FileDescriptor::FileDescriptor(const std::filesystem::path& path, int flags)
    : value_(without_interruptions(
          [&] { return file_operations().open(path.c_str(), flags | O_CLOEXEC, 0666); })) {}

FileDescriptor::~FileDescriptor() { close(); }

int FileDescriptor::close() {
  if (!ok()) return 0;
  // Linux has closed the file even if it reports an interrupting signal.
  return file_operations().close(std::exchange(value_, -1)) == 0 || errno == EINTR ? 0 : errno;
}

void fail_on_file(const std::filesystem::path& path, const std::string& action, int code,
                  std::size_t needed_bytes) {
  std::string found = "cannot " + action + " it: " + std::generic_category().message(code);
  if (code == ENOSPC || code == EDQUOT) {
    std::error_code ignored;
    const auto space =
        std::filesystem::space(std::filesystem::absolute(path, ignored).parent_path(), ignored);
    found += " (needed " + std::to_string(needed_bytes) + " bytes";
    found += ignored ? ")" : ", free " + std::to_string(space.available) + ")";
  }
  throw Error({.place = path.string(), .found = found, .wanted = "", .remedy = remedy_for(path, code)});
}

std::shared_ptr<const FileDescriptor> opened(const std::filesystem::path& path, int flags) {
  auto file = std::make_shared<const FileDescriptor>(path, flags);
  if (!file->ok()) fail_on_file(path, "open", errno);
  return file;
}

bool is_at_path(const FileDescriptor& file, const std::filesystem::path& path) {
  struct stat opened_file = {}, named = {};
  return ::fstat(file.get(), &opened_file) == 0 && ::stat(path.c_str(), &named) == 0 &&
         opened_file.st_dev == named.st_dev && opened_file.st_ino == named.st_ino;
}

// Kernels write less than requested on signals, full disks and beyond 2 GiB.
int write_all(int descriptor, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = without_interruptions(
        [&] { return file_operations().write(descriptor, bytes.data(), bytes.size()); });
    if (written < 0) return errno;
    if (written == 0) return EIO;
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
  return 0;
}

int sync_to_disk(int descriptor) {
  return without_interruptions([&] { return file_operations().fsync(descriptor); }) == 0 ? 0 : errno;
}

}  // namespace kindling
