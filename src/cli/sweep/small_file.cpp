#include "cli/sweep/small_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace kindling {
namespace {

// A regular file that is open for reading; a FIFO or a device is refused without waiting for it.
class OpenFile {
 public:
  explicit OpenFile(const std::filesystem::path& path)
      : file_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY)) {
    struct stat status {};
    if (file_ < 0 || ::fstat(file_, &status) != 0 || !S_ISREG(status.st_mode)) return;
    size_ = static_cast<std::size_t>(status.st_size);
    is_regular_ = true;
  }
  ~OpenFile() {
    if (file_ >= 0) ::close(file_);
  }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;

  bool is_regular() const { return is_regular_; }
  std::size_t size() const { return size_; }
  // Returns fewer bytes if the file ends before or cannot be read.
  std::string read(std::size_t offset, std::size_t size) const {
    std::string bytes(size, '\0');
    std::size_t done = 0;
    while (done < size) {
      const auto count = ::pread(file_, bytes.data() + done, size - done, static_cast<off_t>(offset + done));
      if (count < 0 && errno == EINTR) continue;
      if (count <= 0) break;
      done += static_cast<std::size_t>(count);
    }
    bytes.resize(done);
    return bytes;
  }

 private:
  int file_;
  std::size_t size_ = 0;
  bool is_regular_ = false;
};

}  // namespace

std::optional<std::string> small_file(const std::filesystem::path& path, std::size_t max_bytes) {
  const OpenFile file(path);
  if (!file.is_regular() || file.size() > max_bytes) return std::nullopt;
  return file.read(0, file.size());
}

std::string end_of_file(const std::filesystem::path& path, std::size_t max_bytes) {
  const OpenFile file(path);
  if (!file.is_regular()) return {};
  const std::size_t size = std::min(file.size(), max_bytes);
  std::string bytes = file.read(file.size() - size, size);
  bytes.erase(bytes.rfind('\n') == std::string::npos ? 0 : bytes.rfind('\n') + 1);
  if (size < file.size()) bytes.erase(0, bytes.find('\n') + 1);
  return bytes;
}

}  // namespace kindling
