#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include "kindling/loggers/fit_status.h"
#include "kindling/loggers/progress.h"

namespace kindling {

// Names of logged values and their means.
using Metrics = std::map<std::string, double>;

// Why a fit ended.
enum class FitReason {
  finished,    // max_epochs or max_steps reached
  requested,   // request_stop()
  early_stop,  // request_stop(FitReason::early_stop): no further improvement expected
  diverged,    // the training loss or a gradient was not finite
  error,       // an exception was thrown
  time,        // max_time has elapsed
};

// The result of a fit.
struct FitResult {
  FitStatus status = FitStatus::finished;
  FitReason reason = FitReason::finished;
  Metrics metrics{};                        // of the last epoch record; empty if this call finished no epoch
  Progress progress{};                      // epochs finished, batches of the stopped epoch, steps
  std::filesystem::path best_checkpoint{};  // of the first ModelCheckpoint; empty: none has a monitored value
  std::optional<std::int64_t> diverged_step{};  // the step that was not finite; its update was not applied
  std::string diverged_reason{};                // the findings of repeating that step, as in the app log
};

}  // namespace kindling
