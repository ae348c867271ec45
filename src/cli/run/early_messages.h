#pragma once

#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "kindling/base/log.h"

namespace kindling {

// Keeps what is logged before a run has a directory, such as what its data say while they are read, for the
// log of the run. Prints messages from `stderr_level` on, as before.
class EarlyMessages {
 public:
  explicit EarlyMessages(LogLevel stderr_level);
  ~EarlyMessages();
  EarlyMessages(const EarlyMessages&) = delete;
  EarlyMessages& operator=(const EarlyMessages&) = delete;

  // Configures the log, and writes what has been kept into its file.
  void open(const LogOptions& options);

 private:
  std::mutex mutex_;
  std::vector<std::pair<LogLevel, std::string>> kept_;
};

}  // namespace kindling
