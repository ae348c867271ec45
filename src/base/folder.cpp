#include "base/folder.h"

#include <fcntl.h>

#include "base/file_descriptor.h"
#include "base/file_operations.h"
#include "kindling/base/error.h"

namespace kindling {

std::filesystem::path folder_of(const std::filesystem::path& file) {
  return file.has_parent_path() ? file.parent_path() : ".";
}

void sync_folder(const std::filesystem::path& folder) {
  const auto opened_folder = opened(folder, O_RDONLY | O_DIRECTORY);
  // EINVAL: the file system does not support this for directories.
  if (const int code = sync_to_disk(opened_folder->get()); code != 0 && code != EINVAL)
    fail_on_file(folder, "sync", code);
}

void make_folder(const std::filesystem::path& folder) {
  // "a/" and "a" are the same directory; neither is its parent.
  const std::filesystem::path name = folder.has_filename() ? folder : folder.parent_path();
  if (file_operations().mkdir(name.c_str(), 0777) == 0) {
    sync_folder(folder_of(name));
  } else if (errno != EEXIST) {
    fail_on_file(folder, "make", errno);
  } else if (!std::filesystem::is_directory(folder)) {
    throw Error({.place = folder.string(),
                 .found = "it is a file",
                 .wanted = "a folder",
                 .remedy = "choose another path or move the file away"});
  }
}

}  // namespace kindling
