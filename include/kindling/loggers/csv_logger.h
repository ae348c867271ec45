#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "kindling/base/file.h"
#include "kindling/loggers/logger.h"

namespace kindling {

// Writes one row per epoch, for pandas and spreadsheets: epoch, global_step, then the names in order of
// appearance. A name that appears later adds a column, for which the file is rewritten atomically; a missing
// value is an empty cell. The first row replaces the file of an earlier run, unless the run resumes from a
// checkpoint. Step records are skipped.
class KINDLING_API CsvLogger : public Logger {
 public:
  explicit CsvLogger(std::filesystem::path path);
  void write(const Record& record) override;
  void sync() override;
  // Keeps the rows up to that point in the run's file; replaces a file that is not such a table. Removes rows
  // that cannot be read. Logs their number and the epochs without a row.
  void resume_at(const Progress& at) override;

 private:
  std::string header() const;
  std::string line_of(const Record& record) const;
  std::string widened(const std::string& old_header, std::size_t num_new) const;

  std::filesystem::path path_;
  std::vector<std::string> columns_;  // after epoch and global_step
  std::optional<AppendFile> file_;    // open from the first row on
  bool is_synced_ = true;
};

}  // namespace kindling
