#include "kindling/base/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <new>
#include <system_error>
#include <utility>

#include "kindling/base/error.h"

namespace kindling {

class FileDescriptor {
 public:
  FileDescriptor(const std::filesystem::path& path, int flags) {
    do {
      value_ = ::open(path.c_str(), flags | O_CLOEXEC, 0666);
    } while (value_ < 0 && errno == EINTR);
  }
  ~FileDescriptor() {
    if (value_ >= 0) ::close(value_);
  }
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;

  bool ok() const { return value_ >= 0; }
  int get() const { return value_; }
  int release() { return std::exchange(value_, -1); }

 private:
  int value_;
};

namespace {

std::string remedy_for(int code) {
  switch (code) {
    case ENOENT:
      return "check the path; folders are not made by themselves";
    case EACCES:
    case EPERM:
      return "check the permissions of the file and of its folder";
    case EROFS:
      return "choose a folder on a file system that can be written";
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

// `action`: "open", "write". `needed_bytes` is told when space is the matter.
[[noreturn]] void fail(const std::filesystem::path& path, const std::string& action, int code,
                       std::size_t needed_bytes = 0) {
  std::string found = "cannot " + action + " it: " + std::generic_category().message(code);
  if (code == ENOSPC || code == EDQUOT) {
    std::error_code ignored;
    const auto space =
        std::filesystem::space(std::filesystem::absolute(path, ignored).parent_path(), ignored);
    found += " (needed " + std::to_string(needed_bytes) + " bytes";
    found += ignored ? ")" : ", free " + std::to_string(space.available) + ")";
  }
  throw Error({.place = path.string(), .found = found, .wanted = "", .remedy = remedy_for(code)});
}

std::shared_ptr<const FileDescriptor> opened(const std::filesystem::path& path, int flags) {
  auto file = std::make_shared<const FileDescriptor>(path, flags);
  if (!file->ok()) fail(path, "open", errno);
  return file;
}

// 0, or the error number. Kernels write less than asked on signals, full disks and beyond 2 GiB.
int write_all(int descriptor, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor, bytes.data(), bytes.size());
    if (written < 0 && errno != EINTR) return errno;
    if (written > 0) bytes.remove_prefix(static_cast<std::size_t>(written));
  }
  return 0;
}

std::size_t read_some(const std::filesystem::path& path, int descriptor, char* out, std::size_t size) {
  ssize_t got;
  do {
    got = ::read(descriptor, out, size);
  } while (got < 0 && errno == EINTR);
  if (got < 0) fail(path, "read", errno);
  return static_cast<std::size_t>(got);
}

// What the file system says about the size; 0 for pipes and for files that do not know it.
std::size_t checked_size(const std::filesystem::path& path, int descriptor, bool takes_pipes) {
  struct stat status = {};
  if (::fstat(descriptor, &status) != 0) fail(path, "examine", errno);
  const bool is_pipe = S_ISFIFO(status.st_mode);
  if (S_ISREG(status.st_mode)) return static_cast<std::size_t>(status.st_size);
  if (is_pipe && takes_pipes) return 0;
  throw Error({.place = path.string(),
               .found = S_ISDIR(status.st_mode) ? "it is a folder"
                        : is_pipe               ? "it is a pipe"
                                                : "it is a device or a socket",
               .wanted = "a file",
               .remedy = "check the path"});
}

[[noreturn]] void refuse_size(const std::filesystem::path& path, std::size_t max_bytes) {
  throw Error({.place = path.string(),
               .found = "the file is too large",
               .wanted = "at most " + std::to_string(max_bytes) + " bytes",
               .remedy = "check that it is the right file"});
}

std::string read_all(const std::filesystem::path& path, int descriptor, std::size_t max_bytes) {
  const std::size_t size = checked_size(path, descriptor, /*takes_pipes=*/true);
  if (size > max_bytes) refuse_size(path, max_bytes);
  std::string bytes(size + 1, '\0');  // one more, to see the end without growing
  std::size_t filled = 0;
  while (const std::size_t got = read_some(path, descriptor, bytes.data() + filled, bytes.size() - filled)) {
    filled += got;
    if (filled > max_bytes) refuse_size(path, max_bytes);
    if (filled == bytes.size()) bytes.resize(filled + std::max<std::size_t>(filled, 4096));
  }
  bytes.resize(filled);
  return bytes;
}

void write_durably(const std::filesystem::path& path, const std::filesystem::path& temporary,
                   std::string_view bytes) {
  FileDescriptor file(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW);
  if (!file.ok()) fail(path, "write", errno, bytes.size());
  if (const int code = write_all(file.get(), bytes)) fail(path, "write", code, bytes.size());
  if (::fsync(file.get()) != 0) fail(path, "write", errno, bytes.size());
  // Some file systems report a failed write only here.
  if (::close(file.release()) != 0 && errno != EINTR) fail(path, "write", errno, bytes.size());
  if (::rename(temporary.c_str(), path.c_str()) != 0) fail(path, "replace", errno, bytes.size());
}

// Makes the rename itself durable.
void sync_folder(const std::filesystem::path& folder) {
  const auto opened_folder = opened(folder, O_RDONLY | O_DIRECTORY);
  // EINVAL: the file system knows no such thing for folders.
  if (::fsync(opened_folder->get()) != 0 && errno != EINVAL) fail(folder, "sync", errno);
}

// The size up to and with the last line end.
off_t size_of_whole_lines(const std::filesystem::path& path, int descriptor) {
  off_t size = ::lseek(descriptor, 0, SEEK_END);
  if (size < 0) fail(path, "examine", errno);
  char last = '\n';
  while (size > 0) {
    if (::pread(descriptor, &last, 1, size - 1) != 1) fail(path, "read", errno);
    if (last == '\n') break;
    --size;
  }
  return size;
}

}  // namespace

std::string read_file(const std::filesystem::path& path, std::size_t max_bytes) {
  const auto file = opened(path, O_RDONLY);
  try {
    return read_all(path, file->get(), max_bytes);
  } catch (const std::bad_alloc&) {
    throw Error({.place = path.string(),
                 .found = "the file does not fit into memory",
                 .wanted = "",
                 .remedy = "free some memory or check that it is the right file"});
  }
}

InputFile::InputFile(std::filesystem::path path)
    : path_(std::move(path)),
      file_(opened(path_, O_RDONLY | O_NONBLOCK)),  // a pipe without a writer would block
      size_(checked_size(path_, file_->get(), /*takes_pipes=*/false)) {}

void InputFile::read(std::size_t offset, void* out, std::size_t size) const {
  for (auto* to = static_cast<char*>(out); size > 0;) {
    const ssize_t got = ::pread(file_->get(), to, size, static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail(path_, "read", errno);
    if (got == 0)
      throw Error({.place = path_.string() + ", byte " + std::to_string(offset),
                   .found = "the file ends here",
                   .wanted = std::to_string(size) + " more bytes",
                   .remedy = "something has shortened it: get or save it again"});
    to += got;
    offset += static_cast<std::size_t>(got);
    size -= static_cast<std::size_t>(got);
  }
}

void write_file_atomically(const std::filesystem::path& path, std::string_view bytes) {
  const std::filesystem::path folder = path.has_parent_path() ? path.parent_path() : ".";
  const std::filesystem::path temporary =
      folder / ("." + path.filename().string() + ".tmp." + std::to_string(::getpid()));
  try {
    write_durably(path, temporary, bytes);
  } catch (...) {
    ::unlink(temporary.c_str());
    throw;
  }
  sync_folder(folder);
}

AppendFile::AppendFile(std::filesystem::path path)
    : path_(std::move(path)), file_(opened(path_, O_RDWR | O_CREAT | O_APPEND)) {
  if (::ftruncate(file_->get(), size_of_whole_lines(path_, file_->get())) != 0) fail(path_, "write", errno);
}

void AppendFile::append(std::string_view lines) {
  const off_t before = ::lseek(file_->get(), 0, SEEK_END);
  if (before < 0) fail(path_, "examine", errno);
  const int code = write_all(file_->get(), lines);
  if (code == 0) return;
  // Half a line would spoil the file for its readers and for the next line; should this fail too, the first
  // reason is still the one to tell.
  [[maybe_unused]] const int ignored = ::ftruncate(file_->get(), before);
  fail(path_, "write", code, lines.size());
}

}  // namespace kindling
