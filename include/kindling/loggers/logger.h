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

  // What has been written survives a power loss when it returns: a checkpoint is about to be saved that does
  // not come back to it.
  virtual void sync() {}
  // A training goes on from a checkpoint. What is told from there on will be told again: forget the step
  // records beyond at.global_step and the epoch records beyond at.epoch.
  virtual void resume_at(const Progress&) {}
};

}  // namespace kindling
