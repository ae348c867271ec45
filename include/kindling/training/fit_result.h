#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>

#include "kindling/loggers/progress.h"

namespace kindling {

// Names of logged values and their means.
using Metrics = std::map<std::string, double>;

// How a fit ended.
enum class FitStatus {
  finished,  // max_epochs or max_steps reached
  stopped,   // asked to
  diverged,  // the training loss was not finite any more
  failed,    // something was thrown: only callbacks see it
};

// Why.
enum class FitReason {
  finished,    // max_epochs or max_steps reached
  requested,   // request_stop()
  early_stop,  // request_stop(FitReason::early_stop): nothing more was to be gained
  diverged,    // the training loss was not finite any more
  error,       // something was thrown
};

// What a fit came to.
struct FitResult {
  FitStatus status = FitStatus::finished;
  FitReason reason = FitReason::finished;
  Metrics metrics{};    // the values of the last epoch record; empty when no epoch was finished
  Progress progress{};  // where it stands: epochs finished, batches of the one that was stopped, steps
  std::filesystem::path best_checkpoint{};  // of the first ModelCheckpoint; empty: none has a monitored value
};

}  // namespace kindling
