#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kindling/base/export.h"
#include "kindling/loggers/progress.h"

namespace kindling {

// Final numbers on the host, as loggers and callbacks receive them.
struct KINDLING_API Record {
  // Of a step, of an epoch, or of a validation within an epoch.
  enum class Kind { step, epoch, validation };

  Kind kind = Kind::epoch;
  std::int64_t global_step = 0;                             // optimizer steps done, from 1
  std::int64_t epoch = 0;                                   // from 1
  std::vector<std::pair<std::string, double>> values = {};  // in display order, each name once
  // Of an epoch: a fingerprint of the losses and learning rates of all steps of the run so far, below 2^53;
  // 0: unknown. The same as another run's if all of these are equal.
  std::int64_t digest = 0;

  const double* find(std::string_view name) const;  // nullptr: not found
};

// False if train_loss or val_loss is NaN or infinite: such a record is never the best of a run.
KINDLING_API bool has_finite_losses(const Record& record);

// True if a run that resumes from `at` will create the record again.
KINDLING_API bool is_beyond(const Record& record, const Progress& at);

}  // namespace kindling
