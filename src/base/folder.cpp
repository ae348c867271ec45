#include "base/folder.h"

#include <fcntl.h>

#include "base/file_descriptor.h"
#include "base/file_operations.h"
#include "kindling/base/error.h"

namespace kindling {
namespace {

// Returns 0 or the error number.
int sync_folder_code(const std::filesystem::path& folder) {
  const FileDescriptor opened_folder(folder, O_RDONLY | O_DIRECTORY);
  if (!opened_folder.ok()) return errno;
  const int code = sync_to_disk(opened_folder.get());
  return code == EINVAL ? 0 : code;  // the file system has no such operation for folders
}

// A process that was killed may have created the folder without making its name durable. A parent that this
// user may not read belongs to somebody else, who has made its entries durable.
void sync_name_of_existing(const std::filesystem::path& folder) {
  const std::filesystem::path parent = folder_of(folder);
  const int code = sync_folder_code(parent);
  if (code != 0 && code != EACCES && code != EPERM && code != EROFS) fail_on_file(parent, "sync", code);
}

// "a/" and "a" are the same folder, but only the latter has the right parent_path().
std::filesystem::path without_slash(const std::filesystem::path& folder) {
  return folder.has_filename() ? folder : folder.parent_path();
}

bool is_folder(const std::filesystem::path& path) {
  std::error_code ignored;
  return std::filesystem::is_directory(path, ignored);
}

}  // namespace

std::filesystem::path folder_of(const std::filesystem::path& file) {
  return file.has_parent_path() ? file.parent_path() : ".";
}

void sync_folder(const std::filesystem::path& folder) {
  if (const int code = sync_folder_code(folder)) fail_on_file(folder, "sync", code);
}

bool create_new_folder_durably(const std::filesystem::path& folder) {
  const std::filesystem::path name = without_slash(folder);
  if (file_operations().mkdir(name.c_str(), 0777) == 0) {
    sync_folder(folder_of(name));
    return true;
  }
  if (errno != EEXIST) fail_on_file(folder, "make", errno);
  return false;
}

void make_folder(const std::filesystem::path& folder) {
  if (create_new_folder_durably(folder)) return;
  if (!is_folder(folder))
    throw Error({.place = folder.string(),
                 .found = "it is a file",
                 .wanted = "a folder",
                 .remedy = "choose another path or move the file away"});
  sync_name_of_existing(without_slash(folder));
}

void create_folders_durably(const std::filesystem::path& folder) {
  const std::filesystem::path parent = folder_of(without_slash(folder));
  if (!is_folder(parent))
    create_folders_durably(parent);
  else
    sync_name_of_existing(parent);
  make_folder(folder);
}

}  // namespace kindling
