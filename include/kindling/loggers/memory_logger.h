#pragma once

#include <vector>

#include "kindling/loggers/logger.h"

namespace kindling {

// Keeps all records in memory, for tests and for programs that evaluate them.
class KINDLING_API MemoryLogger : public Logger {
 public:
  void write(const Record& record) override { records_.push_back(record); }
  void resume_at(const Progress& at) override {
    std::erase_if(records_, [&](const Record& record) { return is_beyond(record, at); });
  }
  const std::vector<Record>& records() const { return records_; }

 private:
  std::vector<Record> records_;
};

}  // namespace kindling
