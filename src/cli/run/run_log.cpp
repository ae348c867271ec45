#include "cli/run/run_log.h"

#include <string>
#include <utility>

#include "cli/run/process_settings.h"
#include "kindling/base/log.h"
#include "kindling/base/number_text.h"
#include "kindling/training/trainer.h"

namespace kindling {
namespace {

std::string loader_text(const std::shared_ptr<DataLoader>& loader) {
  if (!loader) return "none";
  if (loader->is_endless())
    return "samples without an end in batches of " + std::to_string(loader->options().batch_size);
  return std::to_string(loader->num_samples()) + " samples in " + std::to_string(loader->num_batches()) +
         " batches of " + std::to_string(loader->options().batch_size);
}

// Epochs count from 1, as in the records.
std::string text(const Progress& at) {
  const std::string step = ", step " + std::to_string(at.global_step),
                    running = "epoch " + std::to_string(at.epoch + 1);
  if (at.phase == Phase::validation) return "in the validation of " + running + step;
  if (at.batch > 0) return "in " + running + ", after batch " + std::to_string(at.batch) + step;
  return (at.epoch == 0 ? "before epoch 1" : "after epoch " + std::to_string(at.epoch)) + step;
}

// In the order of FitReason.
constexpr std::string_view kReasonTexts[] = {"finished", "stopped on request", "stopped early", "diverged",
                                             "failed",   "out of time"};

}  // namespace

RunLog::RunLog(EpochTableOptions monitored, std::function<std::optional<double>()> earlier_best)
    : table_(lines_, std::move(monitored)), earlier_best_(std::move(earlier_best)) {}

void RunLog::on_fit_start(Trainer& trainer, Module& model) {
  for (const auto& [name, value] : environment_facts()) log_info(name + ": " + value);
  log_info("device: " + trainer.device().str());
  log_info("model: " + model.name());
  log_info("training data: " + loader_text(trainer.data()->train_dataloader()));
  log_info("validation data: " + loader_text(trainer.data()->val_dataloader()));
  for (const auto& [name, loader] : trainer.data()->more_val_dataloaders())
    log_info("validation data " + name + ": " + loader_text(loader));
}

void RunLog::on_resume(Trainer&, Module&) {
  if (const std::optional<double> best = earlier_best_()) table_.set_best(*best);
}

void RunLog::on_validation_record(Trainer&, Module&, const Record& record) {
  std::string line =
      "epoch " + std::to_string(record.epoch) + ", step " + std::to_string(record.global_step) + ":";
  for (const auto& [name, value] : record.values) line += " " + name + " " + number_text(value);
  log_info(line);
}

void RunLog::on_epoch_end(Trainer&, Module&, const Record& record) {
  table_.write(record);
  std::istringstream lines(lines_.str());
  lines_.str({});
  for (std::string line; std::getline(lines, line);) log_info(line);
}

void RunLog::on_exception(Trainer&, Module&, const std::exception& error) {
  log_info(std::string("error: ") + error.what());
}

void RunLog::on_fit_end(Trainer&, Module&, const FitResult& result) {
  log_info(std::string(kReasonTexts[static_cast<std::size_t>(result.reason)]) + " " + text(result.progress));
}

}  // namespace kindling
