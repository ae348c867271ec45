#pragma once

#include <filesystem>

#include "kindling/base/file.h"
#include "kindling/loggers/logger.h"

namespace kindling {

// Appends one JSON object per line: the authoritative record of a run. Doubles read back bit-identically, NaN
// and infinities are null, whole numbers have no fraction. Step lines begin with global_step, epoch lines
// with epoch.
class KINDLING_API JsonlLogger : public Logger {
 public:
  explicit JsonlLogger(const std::filesystem::path& path) : path_(path), file_(path) {}
  void write(const Record& record) override;
  void sync() override;
  // Truncates the file before the first later line of the last run in it and removes lines that are not JSON
  // objects. Logs their number and the epochs without a record.
  void resume_at(const Progress& at) override;

 private:
  std::filesystem::path path_;
  AppendFile file_;
  bool is_synced_ = true;
};

}  // namespace kindling
