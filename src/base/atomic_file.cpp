#include <fcntl.h>
#include <unistd.h>

#include "base/file_descriptor.h"
#include "base/file_operations.h"
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

}  // namespace

void write_file_atomically(const std::filesystem::path& path, std::span<const std::string_view> pieces) {
  const std::filesystem::path temporary =
      folder_of(path) / ("." + path.filename().string() + ".tmp." + std::to_string(::getpid()));
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

}  // namespace kindling
