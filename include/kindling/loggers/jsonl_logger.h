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
  explicit JsonlLogger(const std::filesystem::path& path) : file_(path) {}
  void write(const Record& record) override;

 private:
  AppendFile file_;
};

}  // namespace kindling
