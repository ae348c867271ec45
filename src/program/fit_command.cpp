#include <algorithm>
#include <cstdio>

#include "kindling/base/log.h"
#include "kindling/device/host_info.h"
#include "kindling/loggers/csv_logger.h"
#include "kindling/loggers/jsonl_logger.h"
#include "kindling/loggers/terminal.h"
#include "kindling/nn/classifier.h"
#include "kindling/tensors/state_dict.h"
#include "kindling/training/trainer.h"
#include "program/commands.h"
#include "program/loaded_config.h"
#include "program/run_folder.h"
#include "program/screen.h"
#include "program/stop_on_signal.h"

namespace kindling {
namespace {

EpochTableOptions monitored_value(const Module& model) {
  if (dynamic_cast<const Classifier*>(&model) != nullptr)
    return {.monitor = "val_acc", .higher_is_better = true};
  return {.monitor = "val_loss", .higher_is_better = false};
}

std::string device_text(Device device) {
  if (!device.is_cpu()) return device.str();
  const HostInfo host = host_info();
  return "cpu  " + host.cpu_model + "  " + std::to_string(host.memory_total_bytes >> 30) + " GiB";
}

// One batch, on the device, to find out the shapes of the layers.
std::vector<LayerRow> layers_of(Trainer& trainer, const std::shared_ptr<Module>& model, DataModule& data) {
  trainer.prepare_model(model);
  const auto loader = data.train_dataloader();
  loader->stage_for(trainer.device());
  loader->start_epoch(0);
  Batch batch;
  loader->next(batch);
  return layer_summary(*model, data.on_after_batch_transfer(trainer.prepare_batch(std::move(batch))));
}

std::vector<std::shared_ptr<Logger>> file_loggers(const RunFolder& folder, const RunFolderOptions& options) {
  std::vector<std::shared_ptr<Logger>> loggers;
  if (options.jsonl) loggers.push_back(std::make_shared<JsonlLogger>(folder.file("metrics.jsonl")));
  if (options.csv) loggers.push_back(std::make_shared<CsvLogger>(folder.file("metrics.csv")));
  return loggers;
}

void log_to(const Request& request, const std::filesystem::path& file) {
  const bool color = request.color == "always" || (request.color == "auto" && wants_color(fileno(stderr)));
  configure_log({.level = LogLevel::info, .to_stderr = !request.quiet, .color = color, .file = file});
}

// From the folder to the saved weights; the summary in run.json tells how far it came.
class FitRun {
 public:
  FitRun(const CommandContext& context, RunConfig& config, std::shared_ptr<Module> model, DataModule& data)
      : config_(config),
        model_(std::move(model)),
        data_(data),
        folder_(config.folder.dir, config.run.name),
        screen_(std::make_shared<Screen>(context.request, monitored_value(*model_))) {
    log_to(context.request, folder_.file("log.txt"));
    folder_.write_config(config.text());
    folder_.write_command(context.argc, context.argv);
    summary_.seed = config.run.seed;
  }

  int run(const std::string& description) {
    try {
      return train(description);
    } catch (...) {
      summary_.status = "failed";
      folder_.write_summary(summary_);
      throw;
    }
  }

 private:
  int train(const std::string& description) {
    TrainerOptions options = config_.trainer_options();
    options.loggers = file_loggers(folder_, config_.folder);
    options.callbacks = {screen_};
    Trainer trainer(options);
    summary_.device = trainer.device().str();
    const bool fewer =
        static_cast<std::int64_t>(trainer.gpus().size()) < std::max<std::int64_t>(options.num_gpus, 0);
    if (fewer) summary_.device_note = why_no_more_gpus();
    folder_.write_summary(summary_);
    screen_->show_heading({.configs = description,
                           .run = folder_.path().string(),
                           .seed = config_.run.seed,
                           .device = device_text(trainer.device()),
                           .layers = layers_of(trainer, model_, data_)});
    const StopOnSignal stop_on_signal(trainer.stop_token());
    const FitResult result = trainer.fit(model_, data_);
    save(result);
    screen_->show_end(result, folder_.path().string());
    return result.status == FitStatus::stopped ? 128 + stop_on_signal.signal() : 0;
  }

  void save(const FitResult& result) {
    save_safetensors(state_dict(*model_), folder_.file("weights.safetensors"));
    summary_.status = result.status == FitStatus::finished ? "finished" : "stopped";
    summary_.metrics = result.metrics;
    summary_.global_step = result.global_step;
    if (const auto& best = screen_->best()) {
      summary_.best_name = screen_->monitored().monitor;
      summary_.best_value = best->value;
      summary_.best_epoch = best->epoch;
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
  data->prepare_data();
  return FitRun(context, *loaded.config, loaded.config->make_model(), *data).run(loaded.description);
}

}  // namespace kindling
