#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <new>
#include <utility>

#include "base/file_descriptor.h"
#include "kindling/base/error.h"
#include "kindling/base/file.h"

namespace kindling {
namespace {

std::size_t read_some(const std::filesystem::path& path, int descriptor, char* out, std::size_t size) {
  const ssize_t got = without_interruptions([&] { return ::read(descriptor, out, size); });
  if (got < 0) fail_on_file(path, "read", errno);
  return static_cast<std::size_t>(got);
}

// Returns the size that the file system reports; 0 for pipes and files of unknown size.
std::size_t checked_size(const std::filesystem::path& path, int descriptor, bool takes_pipes) {
  struct stat status = {};
  if (::fstat(descriptor, &status) != 0) fail_on_file(path, "examine", errno);
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
  std::string bytes(size + 1, '\0');  // one more, to detect the end without growing
  std::size_t filled = 0;
  while (const std::size_t got = read_some(path, descriptor, bytes.data() + filled, bytes.size() - filled)) {
    filled += got;
    if (filled > max_bytes) refuse_size(path, max_bytes);
    if (filled == bytes.size()) bytes.resize(filled + std::max<std::size_t>(filled, 4096));
  }
  bytes.resize(filled);
  return bytes;
}

}  // namespace

std::string read_file(const std::filesystem::path& path, std::size_t max_bytes) {
  const auto file = opened(path, O_RDONLY);
  try {
    return read_all(path, file->get(), max_bytes);
  } catch (const std::bad_alloc&) {
    throw Error({.place = path.string(),
                 .found = "the file does not fit in memory",
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
    const ssize_t got =
        without_interruptions([&] { return ::pread(file_->get(), to, size, static_cast<off_t>(offset)); });
    if (got < 0) fail_on_file(path_, "read", errno);
    if (got == 0)
      throw Error({.place = path_.string() + ", byte " + std::to_string(offset),
                   .found = "the file ends here",
                   .wanted = std::to_string(size) + " more bytes",
                   .remedy = "the file was truncated: copy or save it again"});
    to += got;
    offset += static_cast<std::size_t>(got);
    size -= static_cast<std::size_t>(got);
  }
}

std::shared_ptr<char> InputFile::map() const {
  if (size_ == 0) return nullptr;
  void* const bytes = ::mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE, file_->get(), 0);
  if (bytes == MAP_FAILED) return nullptr;
  return {static_cast<char*>(bytes), [size = size_](char* begin) { ::munmap(begin, size); }};
}

}  // namespace kindling
