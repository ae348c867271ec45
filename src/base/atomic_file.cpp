#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <charconv>
#include <new>
#include <utility>

#include "base/file_descriptor.h"
#include "base/file_operations.h"
#include "base/file_replacement.h"
#include "base/folder.h"
#include "kindling/base/file.h"

namespace kindling {
namespace {

std::size_t size_of_pieces(std::span<const std::string_view> pieces) {
  std::size_t size = 0;
  for (const std::string_view piece : pieces) size += piece.size();
  return size;
}

// 0, or the error number.
int write_durably(const std::filesystem::path& path, std::span<const std::string_view> pieces) {
  FileDescriptor file(path, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW);
  if (!file.ok()) return errno;
  for (const std::string_view piece : pieces)
    if (const int code = write_all(file.get(), piece)) return code;
  if (const int code = sync_to_disk(file.get())) return code;
  return file.close();
}

constexpr std::string_view kTemporaryMark = ".tmp.";

std::filesystem::path temporary_file_of(const std::filesystem::path& path) {
  return folder_of(path) /
         ("." + path.filename().string() + std::string(kTemporaryMark) + std::to_string(::getpid()));
}

// The process that has written a temporary file, by the file's name; 0: it is another kind of file.
pid_t writer_of(std::string_view file, std::string_view name) {
  const std::size_t mark = file.rfind(kTemporaryMark);
  if (!file.starts_with('.') || mark == std::string_view::npos || mark < 2) return 0;
  if (!name.empty() && file.substr(1, mark - 1) != name) return 0;
  const char* const end = file.data() + file.size();
  pid_t writer = 0;
  const auto [reached, error] = std::from_chars(file.data() + mark + kTemporaryMark.size(), end, writer);
  return error == std::errc() && reached == end && writer > 0 ? writer : 0;
}

// In another container a living process may have the same number.
bool is_dead(pid_t process) { return process == ::getpid() || (::kill(process, 0) != 0 && errno == ESRCH); }

}  // namespace

void delete_stale_temporary_files(const std::filesystem::path& folder, std::string_view name) noexcept try {
  std::error_code ignored;
  for (std::filesystem::directory_iterator entry(folder.empty() ? "." : folder, ignored), end;
       !ignored && entry != end; entry.increment(ignored)) {
    const pid_t writer = writer_of(entry->path().filename().string(), name);
    if (writer != 0 && is_dead(writer)) file_operations().unlink(entry->path().c_str());
  }
} catch (const std::bad_alloc&) {
  // They stay until the next start.
}

void write_file_atomically(const std::filesystem::path& path, std::span<const std::string_view> pieces) {
  const std::filesystem::path temporary = temporary_file_of(path);
  int code = write_durably(temporary, pieces);
  const std::string action = code == 0 ? "replace" : "write";
  if (code == 0 && file_operations().rename(temporary.c_str(), path.c_str()) != 0) code = errno;
  if (code != 0) {
    file_operations().unlink(temporary.c_str());  // first, so that the reported free space is usable
    fail_on_file(path, action, code, size_of_pieces(pieces));
  }
  sync_folder(folder_of(path));  // makes the rename itself durable
}

void write_file_atomically(const std::filesystem::path& path, std::string_view bytes) {
  write_file_atomically(path, std::span(&bytes, 1));
}

FileReplacement::FileReplacement(std::filesystem::path path)
    : path_(std::move(path)), temporary_(temporary_file_of(path_)) {}

FileReplacement::~FileReplacement() {
  if (is_finished_) return;
  file_.reset();
  file_operations().unlink(temporary_.c_str());
}

void FileReplacement::append(std::string_view bytes) {
  if (!file_) file_ = std::make_shared<FileDescriptor>(temporary_, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW);
  if (const int code = file_->ok() ? write_all(file_->get(), bytes) : errno)
    fail_on_file(path_, "write", code, bytes.size());
}

void FileReplacement::finish() {
  if (!file_) file_ = std::make_shared<FileDescriptor>(temporary_, O_RDONLY | O_NOFOLLOW);
  int code = file_->ok() ? sync_to_disk(file_->get()) : errno;
  if (code == 0) code = file_->close();
  if (code != 0) fail_on_file(path_, "write", code);
  if (file_operations().rename(temporary_.c_str(), path_.c_str()) != 0) fail_on_file(path_, "replace", errno);
  is_finished_ = true;
  sync_folder(folder_of(path_));
}

void make_file_durable(const std::filesystem::path& path) {
  const FileDescriptor file(path, O_RDONLY | O_NOFOLLOW);
  if (!file.ok() && errno == ENOENT) return;
  if (const int code = file.ok() ? sync_to_disk(file.get()) : errno) fail_on_file(path, "sync", code);
  sync_folder(folder_of(path));
}

}  // namespace kindling
