#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <chrono>
#include <thread>
#include <utility>

#include "base/file_descriptor.h"
#include "base/file_operations.h"
#include "base/folder.h"
#include "kindling/base/error.h"
#include "kindling/base/file.h"
#include "kindling/base/log.h"

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

std::shared_ptr<const FileDescriptor> opened_lock(const std::filesystem::path& folder) {
  return opened(folder / ".lock", O_RDWR | O_CREAT | O_NOFOLLOW);
}

// False: another one has it.
bool take_lock(const std::filesystem::path& folder, int descriptor) {
  if (without_interruptions([&] { return ::flock(descriptor, LOCK_EX | LOCK_NB); }) != 0) {
    if (errno == EWOULDBLOCK) return false;
    fail_on_file(folder / ".lock", "lock", errno);
  }
  const std::string id = std::to_string(::getpid()) + "\n";
  const auto empty_it = [&] { return file_operations().ftruncate(descriptor, 0); };
  int code = without_interruptions(empty_it) == 0 ? 0 : errno;
  if (code == 0) code = write_all(descriptor, id);
  if (code != 0) fail_on_file(folder / ".lock", "write", code, id.size());
  return true;
}

std::shared_ptr<const FileDescriptor> locked_file(const std::filesystem::path& folder) {
  auto file = opened_lock(folder);
  if (take_lock(folder, file->get())) return file;
  throw Error({.place = folder.string(),
               .found = holder_of(file->get()) + " is using this folder",
               .wanted = "a folder that no other process uses",
               .remedy = "wait until it ends, stop it, or choose another folder"});
}

}  // namespace

// The kernel releases the lock when its holder dies in any way: a leftover file means nothing.
FolderLock::FolderLock(const std::filesystem::path& folder)
    : folder_(std::filesystem::absolute(folder)), file_(locked_file(folder)) {}

FolderLock::FolderLock(std::filesystem::path folder, std::shared_ptr<const FileDescriptor> file)
    : folder_(std::move(folder)), file_(std::move(file)) {}

std::optional<FolderLock> FolderLock::if_free(const std::filesystem::path& folder) {
  auto file = opened_lock(folder);
  if (!take_lock(folder, file->get())) return std::nullopt;
  return FolderLock(std::filesystem::absolute(folder), std::move(file));
}

// There is no call that waits for a limited time: alarm signals belong to the program.
FolderLock lock_folder_within(const std::filesystem::path& folder, int timeout_ms) {
  constexpr int kPoll_ms = 20;
  for (int waited_ms = 0; waited_ms < timeout_ms; waited_ms += kPoll_ms) {
    if (auto lock = FolderLock::if_free(folder)) return std::move(*lock);
    std::this_thread::sleep_for(std::chrono::milliseconds(kPoll_ms));
  }
  return FolderLock(folder);
}

// A shared lock is free exactly if nobody has the exclusive one. It is released at once.
bool is_folder_locked(const std::filesystem::path& folder) noexcept {
  const int file = ::open((folder / ".lock").c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (file < 0) return false;
  const bool is_locked =
      without_interruptions([&] { return ::flock(file, LOCK_SH | LOCK_NB); }) != 0 && errno == EWOULDBLOCK;
  ::close(file);
  return is_locked;
}

// Without the file's name, other processes would lock another file.
void FolderLock::renew() {
  if (is_at_path(*file_, folder_ / ".lock")) return;
  file_ = locked_file(folder_);
  log_warning((folder_ / ".lock").string() +
              ": the lock file was removed while this process was using the folder; it has been created "
              "again");
}

}  // namespace kindling
