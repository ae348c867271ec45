#pragma once

#include <cstddef>
#include <filesystem>
#include <string>

#include "cli/sweep/median_rule.h"

namespace kindling {

// Follows one value of the epoch records in a metrics.jsonl that another process writes.
class EpochReader {
 public:
  EpochReader(std::filesystem::path file, std::string name)
      : file_(std::move(file)), name_(std::move(name)) {}

  // Reads the lines added since the last call; all of them if the file has become shorter, as on a resume.
  const EpochValues& update();
  const EpochValues& values() const noexcept { return values_; }
  const std::filesystem::path& file() const noexcept { return file_; }

 private:
  void take(const std::string& line);

  std::filesystem::path file_;
  std::string name_;
  std::size_t read_bytes_ = 0;
  std::string partial_{};
  EpochValues values_{};
};

}  // namespace kindling
