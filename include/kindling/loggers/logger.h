#pragma once

#include "kindling/base/export.h"
#include "kindling/loggers/fit_status.h"
#include "kindling/loggers/record.h"

namespace kindling {

// Receives records in the order in which they are created, from one thread. May throw Error on failed output.
class KINDLING_API Logger {
 public:
  virtual ~Logger();
  virtual void write(const Record& record) = 0;
  virtual void finish() {}  // once, after the last record
  // Called once per fit, after the last record; a fit that has stopped early is finished. The default calls
  // finish(): override this function instead if the logger needs to know how the fit ended.
  virtual void finalize(FitStatus) { finish(); }

  // Makes everything written so far survive a power loss. Called before a checkpoint is saved, because a run
  // that resumes from it does not write these records again.
  virtual void sync() {}
  // Called when a run resumes from a checkpoint. Later records will be logged again: discard the step records
  // after at.global_step and the epoch records after at.epoch.
  virtual void resume_at(const Progress&) {}
};

}  // namespace kindling
