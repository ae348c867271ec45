#pragma once

#include <filesystem>
#include <functional>
#include <vector>

#include "kindling/base/file.h"
#include "kindling/loggers/logger.h"

namespace kindling {

// Appends one JSON object per line: the authoritative record of a run. Doubles read back bit-identically, NaN
// and infinities are null, whole numbers have no fraction. Step lines begin with global_step, epoch lines
// with epoch.
// A step line is written at once if the latest write was a second ago, else together with later ones: with
// the first record after that second, a validation or epoch record, sync(), finish(), or in the destructor. A
// process that is killed loses at most the step lines of one second, which come after its last checkpoint.
class KINDLING_API JsonlLogger : public Logger {
 public:
  // `clock` returns steady seconds; empty: the system's steady clock.
  explicit JsonlLogger(const std::filesystem::path& path, std::function<double()> clock = {});
  ~JsonlLogger() override;  // logs an error
  JsonlLogger(const JsonlLogger&) = delete;
  JsonlLogger& operator=(const JsonlLogger&) = delete;

  // If it throws, the next write includes the lines that are not in the file.
  void write(const Record& record) override;
  void finish() override;
  void sync() override;
  // Truncates the file before the first later line of the last run in it and removes lines that are not JSON
  // objects. Logs their number and the epochs without a record.
  void resume_at(const Progress& at) override;

 private:
  void flush();

  std::filesystem::path path_;
  AppendFile file_;
  std::function<double()> clock_;
  std::vector<Record> waiting_;  // not yet in the file
  double next_write_s_ = 0;
  bool is_synced_ = true;
};

}  // namespace kindling
