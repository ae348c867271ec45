// The calls that change a folder, recorded for disk_states.h.
#pragma once

#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "base/file_operations.h"
#include "kindling/base/file.h"
#include "support/disk_states.h"

namespace kindling {

inline FolderState read_folder(const std::string& folder) {
  FolderState state;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    state[entry.path().filename().string()] = read_file(entry.path(), 1 << 20);
  return state;
}

// Empties it first.
inline void write_folder(const std::string& folder, const FolderState& state) {
  std::filesystem::remove_all(folder);
  std::filesystem::create_directory(folder);
  for (const auto& [name, bytes] : state)
    std::ofstream(std::filesystem::path(folder) / name, std::ios::binary) << bytes;
}

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
  std::map<std::string, int> files_;  // by name, now
  std::map<int, int> by_descriptor_;  // file, or the folder
  int count_ = 0;
};

}  // namespace kindling
