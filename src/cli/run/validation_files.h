#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>

#include "kindling/data/data_module.h"
#include "kindling/nn/module.h"
#include "kindling/training/trainer.h"
#include "kindling/training/validation_report.h"
#include "runs/run_summary.h"

namespace kindling {

// A run whose fit has ended.
struct EndedRun {
  std::shared_ptr<Module> model{};  // with the last weights
  DataModule& data;
  std::filesystem::path best_checkpoint{};  // empty: none
  std::int64_t global_step = 0;
  std::function<void()> on_batch{};  // called after each batch of the pass
};

struct EndedRunReport {
  ValidationSummary summary{};
  ValidationReport report{};
  bool is_interrupted = false;  // a stop was requested during the pass: there is no report
};

// Returns the validation report (validation_report.h) of the best checkpoint, which is loaded into the model,
// or of the last weights if there is none. Returns nothing if there are no validation samples or the model
// has no report. Logs what it throws as a warning.
std::optional<EndedRunReport> evaluate_ended_run(Trainer& trainer, const EndedRun& run);

// Writes the report into the run directory. Logs what it throws as a warning.
void write_validation_files(const EndedRunReport& run, const std::filesystem::path& folder);

}  // namespace kindling
