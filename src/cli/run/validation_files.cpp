#include "cli/run/validation_files.h"

#include <exception>
#include <string>

#include "checkpoint/checkpoint_file.h"
#include "cli/run/weights.h"
#include "kindling/base/log.h"

namespace kindling {

std::optional<EndedRunReport> evaluate_ended_run(Trainer& trainer, const EndedRun& run) try {
  if (!run.data.val_dataloader()) return std::nullopt;
  EndedRunReport evaluated{.summary = {.weights = "last", .step = run.global_step}};
  ValidationSummary& summary = evaluated.summary;
  if (!run.best_checkpoint.empty()) {
    load_weights_from(*run.model, run.best_checkpoint);
    summary = {.weights = "best", .step = read_checkpoint_info(run.best_checkpoint).global_step};
  }
  const StopToken stop = trainer.stop_token();
  evaluated.report =
      validation_report(trainer, run.model, run.data, {.stop = stop, .on_batch = run.on_batch});
  if (evaluated.report.is_empty()) {
    if (!stop.stop_requested()) return std::nullopt;
    log_warning(
        "the validation report is not made, because a signal ended its pass over the validation samples");
    evaluated.is_interrupted = true;
    return evaluated;
  }
  summary.samples = evaluated.report.num_samples;
  if (!evaluated.report.calibration.empty()) summary.ece = evaluated.report.ece;
  return evaluated;
} catch (const std::exception& error) {
  log_warning(std::string("the validation report cannot be made: ") + error.what());
  return std::nullopt;
}

void write_validation_files(const EndedRunReport& run, const std::filesystem::path& folder) try {
  write_validation_report(run.report, folder);
} catch (const std::exception& error) {
  log_warning(std::string("the validation report cannot be written: ") + error.what());
}

}  // namespace kindling
