#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/file_descriptor.h"
#include "base/file_operations.h"
#include "kindling/base/error.h"
#include "kindling/base/file.h"

namespace kindling {
namespace {

// Returns "process 1234", which the holder has written into the file.
std::string holder_of(int descriptor) {
  char text[24] = {};
  if (::pread(descriptor, text, sizeof text - 1, 0) <= 0) return "another process";
  const std::string id = std::string(text).substr(0, std::string_view(text).find('\n'));
  if (id == std::to_string(::getpid())) return "this process itself (" + id + ")";
  return "process " + id;
}

[[noreturn]] void refuse_lock(const std::filesystem::path& folder, int descriptor, int code) {
  if (code != EWOULDBLOCK) fail_on_file(folder / ".lock", "lock", code);
  throw Error({.place = folder.string(),
               .found = holder_of(descriptor) + " is using this folder",
               .wanted = "a folder that no other process uses",
               .remedy = "wait until it ends, stop it, or choose another folder"});
}

}  // namespace

// The kernel releases the lock when its holder dies in any way: a leftover file means nothing.
FolderLock::FolderLock(const std::filesystem::path& folder)
    : file_(opened(folder / ".lock", O_RDWR | O_CREAT | O_NOFOLLOW)) {
  if (without_interruptions([&] { return ::flock(file_->get(), LOCK_EX | LOCK_NB); }) != 0)
    refuse_lock(folder, file_->get(), errno);
  const std::string id = std::to_string(::getpid()) + "\n";
  const auto empty_it = [&] { return file_operations().ftruncate(file_->get(), 0); };
  int code = without_interruptions(empty_it) == 0 ? 0 : errno;
  if (code == 0) code = write_all(file_->get(), id);
  if (code != 0) fail_on_file(folder / ".lock", "write", code, id.size());
}

}  // namespace kindling
