#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include "kindling/loggers/progress.h"

namespace kindling {

// Names of logged values and their means.
using Metrics = std::map<std::string, double>;

// How a fit ended.
enum class FitStatus {
  finished,  // max_epochs or max_steps reached
  stopped,   // asked to
  diverged,  // the training loss or a gradient was not finite
  failed,    // something was thrown: only callbacks see it
};

// Why.
enum class FitReason {
  finished,    // max_epochs or max_steps reached
  requested,   // request_stop()
  early_stop,  // request_stop(FitReason::early_stop): nothing more was to be gained
  diverged,    // the training loss or a gradient was not finite
  error,       // something was thrown
  time,        // max_time is over
};

// What a fit came to.
struct FitResult {
  FitStatus status = FitStatus::finished;
  FitReason reason = FitReason::finished;
  Metrics metrics{};    // the values of the last epoch record; empty when this call has finished no epoch
  Progress progress{};  // where it stands: epochs finished, batches of the one that was stopped, steps
  std::filesystem::path best_checkpoint{};  // of the first ModelCheckpoint; empty: none has a monitored value
  std::optional<std::int64_t> diverged_step{};  // the step that was not finite; parameters are those before
};

}  // namespace kindling
