#include <fcntl.h>
#include <unistd.h>

#include <utility>

#include "base/file_descriptor.h"
#include "base/file_operations.h"
#include "base/folder.h"
#include "kindling/base/error.h"
#include "kindling/base/file.h"
#include "kindling/base/log.h"

namespace kindling {
namespace {

off_t end_of(const std::filesystem::path& path, int descriptor) {
  const off_t size = ::lseek(descriptor, 0, SEEK_END);
  if (size < 0) fail_on_file(path, "examine", errno);
  return size;
}

bool ends_a_line(const std::filesystem::path& path, int descriptor, off_t size) {
  char last = '\n';
  if (size > 0 && ::pread(descriptor, &last, 1, size - 1) != 1) fail_on_file(path, "read", errno);
  return last == '\n';
}

// Returns the size up to and including the last line end.
off_t size_of_whole_lines(const std::filesystem::path& path, int descriptor) {
  off_t size = end_of(path, descriptor);
  while (!ends_a_line(path, descriptor, size)) --size;
  return size;
}

// All bytes of the open file, which may have no name any more.
std::string contents_of(const std::filesystem::path& path, int descriptor) {
  std::string bytes(static_cast<std::size_t>(end_of(path, descriptor)), '\0');
  for (std::size_t filled = 0; filled < bytes.size();) {
    const ssize_t got = without_interruptions([&] {
      return ::pread(descriptor, bytes.data() + filled, bytes.size() - filled, static_cast<off_t>(filled));
    });
    if (got < 0) fail_on_file(path, "read", errno);
    if (got == 0) bytes.resize(filled);
    filled += static_cast<std::size_t>(got);
  }
  return bytes;
}

int cut_file(int descriptor, off_t size) {
  return without_interruptions([&] { return file_operations().ftruncate(descriptor, size); });
}

}  // namespace

AppendFile::AppendFile(const std::filesystem::path& path)
    : path_(std::filesystem::absolute(path)),  // the current folder may be another one by the next sync()
      file_(opened(path_, O_RDWR | O_CREAT | O_APPEND)) {
  const off_t size = size_of_whole_lines(path_, file_->get());
  if (size != end_of(path_, file_->get()) && cut_file(file_->get(), size) != 0)
    fail_on_file(path_, "write", errno);
}

void AppendFile::append(std::string_view lines) {
  const off_t before = end_of(path_, file_->get());
  const int code = write_all(file_->get(), lines);
  if (code == 0) return;
  // A partial line would break the file for its readers and for the next line. If removing it fails too, the
  // first error is still the one to report.
  cut_file(file_->get(), before);
  fail_on_file(path_, "write", code, lines.size());
}

void AppendFile::sync() {
  if (!is_at_path(*file_, path_)) restore();
  if (const int code = sync_to_disk(file_->get())) fail_on_file(path_, "sync", code);
  if (!std::exchange(has_durable_name_, true)) sync_folder(folder_of(path_));
}

void AppendFile::restore() {
  const bool is_replaced = std::filesystem::exists(path_);
  if (!is_replaced) write_file_atomically(path_, contents_of(path_, file_->get()));
  *this = AppendFile(path_);
  log_warning(path_.string() +
              (is_replaced ? ": another file has replaced it while it was being written; its former lines "
                             "are lost, later ones are added to the new file"
                           : ": the file was removed while it was being written; it has been written again"));
}

void AppendFile::cut_to(std::size_t size) {
  const off_t end = static_cast<off_t>(size);
  const off_t now = end_of(path_, file_->get());
  if (end > now || !ends_a_line(path_, file_->get(), end))
    throw Error({.place = path_.string() + ", byte " + std::to_string(size),
                 .found = end > now ? "the file ends after " + std::to_string(now) + " bytes"
                                    : "no line ends at this byte",
                 .wanted = "the end of a line, to truncate the file there",
                 .remedy = "another program has changed the file: make sure that only one writes to it"});
  if (cut_file(file_->get(), end) != 0) fail_on_file(path_, "cut", errno);
}

}  // namespace kindling
