#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "kindling/base/file.h"
#include "kindling/loggers/logger.h"

namespace kindling {

// One row per epoch, for pandas and spreadsheets: epoch, global_step, then the names in order of appearance.
// A name that appears later widens the table, for which the file is read again and rewritten atomically; a
// missing value is an empty cell. The first row replaces a file of an earlier run, unless the training goes
// on from a checkpoint. Step records are skipped.
class KINDLING_API CsvLogger : public Logger {
 public:
  explicit CsvLogger(std::filesystem::path path);
  void write(const Record& record) override;
  void sync() override;
  // Keeps the rows up to there of the file that the run has left; one that is no such table is replaced.
  void resume_at(const Progress& at) override;

 private:
  std::string header() const;
  std::string line_of(const Record& record) const;
  std::string widened(const std::string& old_header, std::size_t num_new) const;

  std::filesystem::path path_;
  std::vector<std::string> columns_;  // after epoch and global_step
  std::optional<AppendFile> file_;    // from the first row on
  bool is_synced_ = true;
};

}  // namespace kindling
