// A disk that loses its power: what a folder may hold afterwards, by what has been synced and what has not.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/file_operations.h"

namespace kindling {

// A call that changes a folder or a file in it. Files are numbered, as they may change their names.
struct DiskEvent {
  enum class Kind { name, unname, truncate, write, sync_file, sync_folder } kind;
  int file = -1;
  std::string name{};   // name, unname
  std::string bytes{};  // write
};

// Name → bytes.
using FolderState = std::map<std::string, std::string>;

FolderState read_folder(const std::string& folder);
void write_folder(const std::string& folder, const FolderState& state);  // empties it first

// Makes the calls and writes them down. For one folder.
class RecordedCalls : public FileOperations {
 public:
  explicit RecordedCalls(const FolderState& before);

  int open(const char* path, int flags, mode_t mode) override;
  ssize_t write(int descriptor, const void* bytes, std::size_t size) override;
  int fsync(int descriptor) override;
  int rename(const char* from, const char* to) override;
  int unlink(const char* path) override;

  std::vector<DiskEvent> events;

 private:
  static constexpr int kFolder = -1;
  std::map<std::string, int> files_;  // by name, now
  std::map<int, int> by_descriptor_;  // file, or the folder
  int count_ = 0;
};

// Of all that the disk may hold when the power fails after the first `count` events: of each file that is not
// synced nothing new, half of it, zeros in its place or all; of the folder's changes since its last sync any
// choice. File systems that keep an order among them allow fewer.
std::set<FolderState> states_after_power_loss(const FolderState& before, const std::vector<DiskEvent>& events,
                                              std::size_t count);

}  // namespace kindling
