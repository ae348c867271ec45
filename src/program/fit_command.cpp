#include <algorithm>
#include <cstdio>

#include "kindling/base/log.h"
#include "kindling/loggers/csv_logger.h"
#include "kindling/loggers/jsonl_logger.h"
#include "kindling/loggers/terminal.h"
#include "kindling/tensors/state_dict.h"
#include "kindling/training/trainer.h"
#include "program/commands.h"
#include "program/loaded_config.h"
#include "program/run_folder.h"
#include "program/run_log.h"
#include "program/screen.h"
#include "program/stop_on_signal.h"

namespace kindling {
namespace {

constexpr int kDiverged = 4;                                                           // exit code
constexpr const char* kStatusTexts[] = {"finished", "stopped", "diverged", "failed"};  // as FitStatus

std::vector<std::shared_ptr<Logger>> file_loggers(const RunFolder& folder, const RunFolderOptions& options) {
  std::vector<std::shared_ptr<Logger>> loggers;
  if (options.jsonl) loggers.push_back(std::make_shared<JsonlLogger>(folder.file("metrics.jsonl")));
  if (options.csv) loggers.push_back(std::make_shared<CsvLogger>(folder.file("metrics.csv")));
  return loggers;
}

void log_to(const Request& request, const std::filesystem::path& file) {
  const bool color = request.color == "always" || (request.color == "auto" && wants_color(fileno(stderr)));
  configure_log({.level = LogLevel::info,
                 .to_stderr = !request.quiet,
                 .stderr_level = LogLevel::warning,
                 .color = color,
                 .file = file});
}

// From the folder to the saved weights; the summary in run.json tells how far it came.
class FitRun {
 public:
  FitRun(const CommandContext& context, const LoadedConfig& loaded, std::shared_ptr<Module> model,
         DataModule& data)
      : config_(*loaded.config),
        model_(std::move(model)),
        data_(data),
        folder_(config_.folder.dir, config_.run.name) {
    const Module::Monitor monitor = model_->monitor();
    const Heading heading{
        .configs = loaded.description, .run = folder_.path().string(), .seed = config_.run.seed};
    screen_ = std::make_shared<Screen>(
        context.request, heading,
        EpochTableOptions{.monitor = monitor.name, .higher_is_better = monitor.higher_is_better});
    log_to(context.request, folder_.file("log.txt"));
    folder_.write_config(config_.text());
    folder_.write_command(context.argc, context.argv);
    summary_.seed = config_.run.seed;
  }

  int run() {
    try {
      return train();
    } catch (...) {
      summary_.status = "failed";
      folder_.write_summary(summary_);
      throw;
    }
  }

 private:
  int train() {
    TrainerOptions options = config_.trainer_options();
    options.loggers = file_loggers(folder_, config_.folder);
    for (auto& logger : config_.make_loggers(folder_.path())) options.loggers.push_back(std::move(logger));
    options.callbacks.insert(options.callbacks.begin(), {std::make_shared<RunLog>(), screen_});
    Trainer trainer(options);
    summary_.device = trainer.device().str();
    const bool fewer =
        static_cast<std::int64_t>(trainer.gpus().size()) < std::max<std::int64_t>(options.num_gpus, 0);
    if (fewer) summary_.device_note = why_no_more_gpus();
    folder_.write_summary(summary_);
    const StopOnSignal stop_on_signal(trainer.stop_token());
    const FitResult result = trainer.fit(model_, data_);
    save(result);
    if (result.status == FitStatus::diverged) return kDiverged;
    return stop_on_signal.exit_code();
  }

  void save(const FitResult& result) {
    save_safetensors(state_dict(*model_), folder_.file("weights.safetensors"));
    summary_.status = kStatusTexts[static_cast<std::size_t>(result.status)];
    summary_.metrics = result.metrics;
    summary_.global_step = result.progress.global_step;
    if (const auto& best = screen_->best_value()) {
      summary_.best_name = screen_->monitored();
      summary_.best_value = *best;
      summary_.best_epoch = screen_->best_epoch();
    }
    folder_.write_summary(summary_);
  }

  RunConfig& config_;
  std::shared_ptr<Module> model_;
  DataModule& data_;
  RunFolder folder_;
  std::shared_ptr<Screen> screen_;
  RunSummary summary_;
};

}  // namespace

int fit_command(const CommandContext& context) {
  const LoadedConfig loaded = load_config(context.request, context.registry);
  if (loaded.only_asked) return 0;
  // Everything that can be refused is refused before there is a folder.
  const auto data = loaded.config->make_data();
  data->prepare();
  return FitRun(context, loaded, loaded.config->make_model(), *data).run();
}

}  // namespace kindling
