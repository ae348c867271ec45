#include "plain_file.h"

#include <fcntl.h>
#include <kindling/base/error.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

namespace kindling_bench {
namespace {

void require(bool ok, const std::filesystem::path& path) {
  if (!ok) throw kindling::Error({.place = path.string(), .found = std::generic_category().message(errno)});
}

}  // namespace

void write_plainly(const std::filesystem::path& path, std::string_view bytes) {
  const std::filesystem::path temporary = path.string() + ".tmp";
  const int file = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  require(file >= 0, temporary);
  while (!bytes.empty()) {
    const ssize_t written = ::write(file, bytes.data(), bytes.size());
    require(written > 0, temporary);
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
  require(::fsync(file) == 0, temporary);
  require(::close(file) == 0, temporary);
  require(::rename(temporary.c_str(), path.c_str()) == 0, path);
}

PlainBytes read_plainly(const std::filesystem::path& path) {
  const std::size_t size = std::filesystem::file_size(path);
  PlainBytes read{.bytes = std::make_unique_for_overwrite<char[]>(size), .size = size};
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  require(file >= 0, path);
  for (std::size_t done = 0; done < size;) {
    const ssize_t got = ::pread(file, read.bytes.get() + done, size - done, static_cast<off_t>(done));
    require(got > 0, path);
    done += static_cast<std::size_t>(got);
  }
  ::close(file);
  return read;
}

}  // namespace kindling_bench
