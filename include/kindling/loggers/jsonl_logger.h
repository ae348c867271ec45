#pragma once

#include <filesystem>

#include "kindling/base/file.h"
#include "kindling/loggers/logger.h"

namespace kindling {

// One JSON object a line, appended: the source of truth of a run. Doubles read back the same, NaN and
// infinities are null, whole numbers carry no fraction. Step lines begin with global_step, epoch lines with
// epoch.
class KINDLING_API JsonlLogger : public Logger {
 public:
  explicit JsonlLogger(const std::filesystem::path& path) : path_(path), file_(path) {}
  void write(const Record& record) override;
  void sync() override;
  // Cuts the file off before the first line beyond, of the training that stands last in it.
  void resume_at(const Progress& at) override;

 private:
  std::filesystem::path path_;
  AppendFile file_;
  bool is_synced_ = true;
};

}  // namespace kindling
