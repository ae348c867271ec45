#pragma once

#include "kindling/base/export.h"
#include "kindling/loggers/record.h"

namespace kindling {

// Takes records in the order in which they come about, from one thread. May throw Error on failed output.
class KINDLING_API Logger {
 public:
  virtual ~Logger();
  virtual void write(const Record& record) = 0;
  virtual void finish() {}  // once, after the last record
};

}  // namespace kindling
