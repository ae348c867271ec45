#include "cli/run/fit_run.h"

#include <ATen/Context.h>
#include <torch/version.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <iostream>
#include <utility>

#include "checkpoint/checkpoint_file.h"
#include "cli/config/exit_codes.h"
#include "cli/run/data_summary.h"
#include "cli/run/finders.h"
#include "cli/run/fit_doubts.h"
#include "cli/run/lost_output.h"
#include "cli/run/process_settings.h"
#include "cli/run/requeue.h"
#include "cli/run/run_keeper.h"
#include "cli/run/run_log.h"
#include "cli/run/screen.h"
#include "cli/run/start_files.h"
#include "cli/run/validation_files.h"
#include "device/float32_products.h"
#include "kindling/base/error.h"
#include "kindling/base/log.h"
#include "kindling/base/number_text.h"
#include "kindling/data/input_transform.h"
#include "kindling/device/host_info.h"
#include "kindling/loggers/csv_logger.h"
#include "kindling/loggers/jsonl_logger.h"
#include "kindling/loggers/tensorboard_logger.h"
#include "kindling/loggers/terminal.h"
#include "kindling/tensors/state_dict.h"
#include "kindling/training/rollout_validation.h"
#include "kindling/training/trainer.h"
#include "kindling/training/validation_report.h"
#include "loggers/metric_text.h"
#include "runs/run_folder.h"
#include "runs/run_report.h"
#include "tensors/shape_text.h"

namespace kindling {
namespace {

constexpr const char* kStatusTexts[] = {"finished", "stopped", "diverged", "failed"};  // as FitStatus

// In run.json.
const char* reason_name(FitReason reason) {
  switch (reason) {
    case FitReason::finished:
      return "finished";
    case FitReason::requested:
      return "requested";
    case FitReason::early_stop:
      return "early_stop";
    case FitReason::diverged:
      return "diverged";
    case FitReason::time:
      return "time";
    case FitReason::error:
      break;
  }
  return "error";
}

// Each rank has its own log file. Rank 0 also prints warnings, unless --quiet is set; errors are always
// printed.
LogOptions log_of(const Group& group, const Request& request, const FitFolder& folder) {
  const bool color = request.color == "always" || (request.color == "auto" && wants_color(fileno(stderr)));
  return {
      .level = LogLevel::info,
      .to_stderr = true,
      .stderr_level = is_first(group) && !request.quiet ? LogLevel::warning : LogLevel::error,
      .color = color,
      .file = folder.file(is_first(group) ? "log.txt" : "log.rank" + std::to_string(group->rank()) + ".txt"),
      .follow_links = false};
}

// The run directory, which rank 0 creates or finds.
FitFolder folder_of(const Group& group, const ConfigTables& config, const ResumePlan& plan,
                    const LaunchPlace& place) {
  if (!is_first(group)) return FitFolder::of_another_process(broadcast_text(group, ""));
  const std::filesystem::path& former = plan.run.empty() ? plan.restarts_in : plan.run;
  FitFolder folder = former.empty() ? FitFolder(config.folder.dir, config.run.name) : FitFolder(former);
  if (plan.run.empty()) remember_run(place, folder.path());
  broadcast_text(group, std::filesystem::absolute(folder.path()).string());
  return folder;
}

// The config that names the user's project: of a resumed run, the one in its directory.
std::filesystem::path config_of(const Request& request, const FitFolder& folder) {
  if (!request.configs.empty()) return request.configs.back();
  return request.resume.empty() ? std::filesystem::path() : folder.file("config.toml");
}

// All ranks but rank 0 are quiet.
Request request_of_rank(const Group& group, Request request) {
  request.quiet = request.quiet || !is_first(group);
  return request;
}

std::shared_ptr<ModelCheckpoint> checkpoint_of(const ConfigTables& config, const FitFolder& folder) {
  ModelCheckpointOptions options = config.checkpoint;
  options.dirpath = checkpoints_of(folder.path());
  return std::make_shared<ModelCheckpoint>(options);
}

// The rows of model.csv: layers with parameters.
std::vector<std::vector<std::string>> layer_cells(const std::vector<LayerRow>& layers) {
  const auto shape = [](const auto& sizes) { return sizes.empty() ? std::string() : shape_text(sizes); };
  std::vector<std::vector<std::string>> rows;
  for (const LayerRow& layer : layers)
    if (layer.num_parameters > 0)
      rows.push_back({layer.name, layer.type, shape(layer.input_shape), shape(layer.output_shape),
                      std::to_string(layer.num_parameters)});
  return rows;
}

// Silences LibTorch's profiler, which prints its start and end to stderr, within the table of epochs.
void keep_profiler_quiet() { ::setenv("KINETO_LOG_LEVEL", "99", /*overwrite=*/0); }

// Runs a fit from the run directory to the saved weights; run.json records its progress.
class FitRun {
 public:
  explicit FitRun(FitInputs inputs)
      : in_(std::move(inputs)),
        config_(*in_.loaded.config),
        request_(request_of_rank(in_.group, in_.context.request)),
        folder_(folder_of(in_.group, config_, in_.plan, in_.place)),
        checkpoint_(checkpoint_of(config_, folder_)),
        keeper_(
            std::make_shared<RunKeeper>(folder_, config_, is_first(in_.group) ? in_.place : std::nullopt)) {
    if (!in_.plan.run.empty()) renew_plan();
    if (!in_.plan.run.empty()) former_data_ = run_data(in_.plan.run);
    config_.resume = {};  // concerns this start, not the run
    const Module::Monitor monitor = config_.monitor_of(*in_.model);
    const Heading heading{.configs = in_.loaded.description,
                          .run = folder_.path().string(),
                          .seed = config_.run.seed,
                          .resume = in_.plan.note,
                          .chosen = texts_of(in_.loaded.chosen),
                          .has_masks = config_.values()["data.name"] == "\"segmentation_folder\"",
                          .program = std::filesystem::path(in_.context.argv[0]).filename().string()};
    screen_ = std::make_shared<Screen>(
        request_, heading,
        EpochTableOptions{.monitor = monitor.name, .higher_is_better = monitor.higher_is_better});
    if (in_.plan.is_finished) return;
    in_.early.open(log_of(in_.group, in_.context.request, folder_));
    if (const std::string text = restart_text(in_.place); !text.empty()) log_info(text);
    if (!in_.plan.note.empty()) log_info("resume: " + in_.plan.note);
    for (const ChosenKey& chosen : in_.loaded.chosen)
      log_info("config: " + chosen.key + " = " + chosen.value + ", because " + chosen.reason);
    if (!in_.threads.empty()) log_info("threads: " + in_.threads);
    for (const std::string& warning : in_.warnings) log_warning(warning);
    for (const std::string& line : report_lines(in_.start, /*max_names=*/1000))
      log_info("model.init_weights: " + line);
    folder_.append_command(command_line_of(in_.context));
    if (in_.group) summary_.num_processes = in_.group->size();
    summary_.seed = config_.run.seed;
    if (in_.job) summary_.slurm_job = in_.job->id;
    summary_.slurm_array_task = in_.job && !in_.job->array_task.empty() ? in_.job->array_task
                                : in_.plan.run.empty()                  ? ""
                                                       : run_text(in_.plan.run, "slurm_array_task");
    if (!in_.plan.run.empty()) summary_.parent = run_parent(in_.plan.run);
    if (is_first(in_.group)) summary_.git = git_commit_of_project(config_of(in_.context.request, folder_));
    summary_.fast_mkl = chosen_mkl_kernels();
    summary_.float32_matmul_precision =
        config_.trainer_options().float32_matmul_precision.value_or(float32_matmul_precision());
    warn_other_kernels();
    warn_other_libtorch();
    if (folder_.is_reused())
      log_info("the folder is that of a run that was killed before its first checkpoint");
    if (!in_.plan.checkpoint) return;
    summary_.resumed_from_step = in_.plan.checkpoint->global_step;
    summary_.global_step = in_.plan.checkpoint->global_step;
  }

  int run() {
    if (in_.plan.is_finished) return print_finished(is_first(in_.group), in_.plan);
    set_input_transform(*in_.model, in_.data->input_transform());
    in_.signals.defer_stops();  // the next summary has the status "running"
    try {
      give_class_weights(config_, *in_.model, *in_.data);
      give_target_scale(config_, *in_.model, *in_.data);
      return train();
    } catch (...) {
      record_failure();
      throw;
    }
  }

 private:
  // Another process may have used the directory until the lock was free.
  void renew_plan() {
    if (is_first(in_.group)) plan_with_lock();
    const std::string checkpoint =
        broadcast_text(in_.group, in_.plan.is_finished ? "" : in_.plan.checkpoint.value().path.string());
    in_.plan.is_finished = checkpoint.empty();
    if (in_.plan.checkpoint) in_.plan.checkpoint->path = checkpoint;
  }

  void plan_with_lock() {
    ResumePlan plan = plan_resume(in_.context.request, in_.context.registry, config_);
    if (plan.run != in_.plan.run)
      throw Error({.place = in_.plan.run.string(),
                   .found = "a newer run has been created meanwhile: " + plan.run.string(),
                   .remedy = "start again"});
    in_.plan = std::move(plan);
  }

  // Resuming with other kernels continues the same run, but is not bit-identical.
  void warn_other_kernels() const {
    const std::string former = in_.plan.run.empty() ? "" : run_text(in_.plan.run, "fast_mkl");
    if (!former.empty() && former != summary_.fast_mkl)
      log_warning("run.fast_mkl: MKL's fast kernels were \"" + former + "\" before and are now \"" +
                  summary_.fast_mkl + "\"; from here on, results may differ in their last bits");
  }

  // Some operators compute other values or gradients: docs/reference/libtorch_versions.md.
  void warn_other_libtorch() const {
    const std::string former = in_.plan.run.empty() ? "" : run_text(in_.plan.run, "libtorch");
    if (!former.empty() && former != TORCH_VERSION)
      log_warning("LibTorch: the run was trained with version " + former + " and now continues with " +
                  TORCH_VERSION + "; from here on, results may differ");
  }

  // The epoch of the checkpoint goes on with other batches, and a split may put other samples aside.
  void warn_other_data(const DataSummary& data) const {
    const std::string difference = difference_of(former_data_, data);
    if (!difference.empty())
      log_warning(
          "data: not the data that the run began with (" + difference +
          "); the rest of the run trains on other batches, and samples of the training set may now be in "
          "the validation set");
  }

  void record_failure() {
    summary_.status = "failed";
    summary_.global_step = keeper_->failed_step().value_or(summary_.global_step);
    try {
      take_results();
      write_summary();
      if (report_) report_->write_final();
      folder_.make_durable();
    } catch (const std::exception& error) {  // the first error is the one to report
      log_error(std::string("while handling an error of the fit: ") + error.what());
    }
  }

  int train() {
    if (in_.plan.run.empty() && !search()) return finish_stopped(in_.signals.exit_code());
    Trainer trainer(trainer_options());
    summary_.device = trainer.device().str();
    if (num_gpus() < trainer.options().num_gpus) summary_.device_note = gpu_unavailable_reason();
    write_summary();
    in_.signals.watch(trainer.stop_token(), checkpoint_);
    checkpoint_->set_metadata({{"config", config_.values_text()}});
    if (is_first(in_.group))
      keeper_->notify_of_data([this](DataSummary data) {
        warn_other_data(data);
        folder_.write_skipped(data.skipped);
        summary_.data = std::move(data);
        write_summary();
      });
    if (is_to_requeue(config_) && is_first(in_.group))
      if (const auto limit_s = kill_wait_s()) keeper_->watch_saves(checkpoint_, *limit_s);
    if (is_first(in_.group)) remove_validation_report(folder_.path());  // of an earlier end of the run
    FitOptions options;
    if (in_.plan.checkpoint) options.resume = in_.plan.checkpoint->path;
    FitResult result = trainer.fit(in_.model, *in_.data, options);
    if (is_first(in_.group))
      save_safetensors(state_dict_with_transform(*in_.model), folder_.file("weights.safetensors"));
    summary_.global_step = result.progress.global_step;
    report_removed_files();
    take_results();
    std::optional<EndedRunReport> evaluated;
    SoloWork work(in_.group);
    if (is_first(in_.group) && is_complete(result))
      evaluated = evaluate_ended_run(trainer, {in_.model, *in_.data, checkpoint_->best(),
                                               result.progress.global_step, [&] { work.keep_waiting(); }});
    if (evaluated && evaluated->is_interrupted) {
      evaluated.reset();
      // All is trained, and a resumed run makes the report. One that had stopped early would train on.
      if (result.reason == FitReason::finished && !checkpoint_->last().empty())
        result.status = FitStatus::stopped, result.reason = FitReason::requested;
    }
    if (evaluated) summary_.validation = evaluated->summary;
    summary_.status = kStatusTexts[static_cast<std::size_t>(result.status)];
    summary_.reason = reason_name(result.reason);
    folder_.stage_summary(summary_);  // before files that may fill the disk
    if (evaluated) write_validation_files(*evaluated, folder_.path());
    if (report_) {
      report_->write_final(folder_.summary_text(summary_));
      screen_->show_curves(report_->metrics());
    }
    if (is_first(in_.group)) {
      for (const std::string& doubt : doubts_about(result, config_, *in_.model, *in_.data))
        log_warning(doubt);
      screen_->show_end(result, best_saved_text());
    }
    folder_.make_durable();
    folder_.commit_summary();  // last: a run that is finished has all of its files
    // A signal may have reached only one rank. No rank exits before rank 0 has written everything.
    const int signal_code = code_of_vote(work.largest(vote_of(in_.signals.exit_code())));
    if (result.status == FitStatus::diverged) return finish(kDivergedCode);
    if (result.reason == FitReason::time) print_resume_command();
    const bool is_stopped = largest(in_.group, result.reason == FitReason::requested ? 1 : 0) == 1;
    return is_stopped ? finish_stopped(signal_code) : finish(0);
  }

  // Runs the searches that the config requests before a new run. Returns false if a signal has ended them.
  bool search() {
    folder_.write_config(config_.text());
    write_summary();
    const StopToken stop;
    in_.signals.watch(stop, checkpoint_);
    TrainerOptions options = config_.trainer_options();
    options.optimizer = with_start(options.optimizer, config_.optimizer_start);
    options.process_group = in_.group;
    const FinderInputs inputs{config_, folder_, options, in_.model, in_.data, stop, request_.quiet};
    const bool is_single = summary_.num_processes == 1;
    if (is_single) run_finders(inputs);
    if (is_single || largest(in_.group, in_.threads.empty() ? 1 : 0) == 0) choose_threads(inputs);
    if (!is_single || !stop.stop_requested()) return true;  // a stop of ranks ends the fit that follows
    summary_.status = kStatusTexts[static_cast<std::size_t>(FitStatus::stopped)];
    summary_.reason = reason_name(stop.reason());
    take_results();
    write_summary();
    return false;
  }

  // The program's callbacks come first, so that their positions are the same in every run; checkpoint_ has
  // none, because it saves.
  TrainerOptions trainer_options() {
    TrainerOptions options = config_.trainer_options();
    // If the program has chosen, the CPU of one rank is the choice of all: machines may differ in their GPUs.
    if (!config_.trainer.num_gpus && largest(in_.group, options.num_gpus == 0 ? 1 : 0) == 1)
      options.num_gpus = 0;
    options.nonfinite_dir = folder_.path();
    if (is_first(in_.group)) options.profile_dir = folder_.path();
    if (options.profile) keep_profiler_quiet();
    if (in_.plan.run.empty()) options.optimizer = with_start(options.optimizer, config_.optimizer_start);
    options.process_group = in_.group;
    static_assert(kNumProgramCallbacks == 3);
    options.callbacks.insert(options.callbacks.begin(), {run_log(), screen_, checkpoint_, keeper_});
    // It has no state, and comes after those whose position checkpoints have.
    if (in_.data->rollouts().loader) options.callbacks.push_back(std::make_shared<RolloutValidation>());
    if (is_first(in_.group)) add_loggers(options);
    return options;
  }

  std::shared_ptr<RunLog> run_log() const {
    const Module::Monitor monitor = config_.monitor_of(*in_.model);
    return std::make_shared<RunLog>(
        EpochTableOptions{.monitor = monitor.name, .higher_is_better = monitor.higher_is_better},
        [screen = screen_] { return screen->best_value(); });
  }

  void add_loggers(TrainerOptions& options) {
    if (config_.folder.jsonl)
      options.loggers.push_back(std::make_shared<JsonlLogger>(folder_.file("metrics.jsonl")));
    if (config_.folder.csv)
      options.loggers.push_back(std::make_shared<CsvLogger>(folder_.file("metrics.csv")));
    if (config_.folder.tensorboard) options.loggers.push_back(tensorboard_logger());
    report_ = std::make_shared<RunReport>(folder_.path(), report_options());
    options.loggers.push_back(report_);
    for (auto& logger : config_.make_loggers(folder_.path())) options.loggers.push_back(std::move(logger));
    if (in_.plan.restarts_in.empty() && !folder_.is_reused()) return;
    for (const auto& logger : options.loggers)
      logger->resume_at({});  // discards what the previous start wrote
  }

  std::shared_ptr<TensorBoardLogger> tensorboard_logger() const {
    auto logger = std::make_shared<TensorBoardLogger>(folder_.path());
    logger->add_text("config", "```toml\n" + config_.values_text() + "```\n");
    std::vector<std::pair<std::string, std::string>> values;
    for (const auto& [key, value] : config_.values()) values.emplace_back(key, unquoted(value));
    const Module::Monitor monitor = config_.monitor_of(*in_.model);
    logger->add_hyperparameters(std::move(values), {monitor.name});
    return logger;
  }

  RunReportOptions report_options() const {
    const Module::Monitor monitor = config_.monitor_of(*in_.model);
    return {.svg = config_.folder.svg,
            .html = config_.folder.html,
            .reads_records = config_.folder.jsonl,
            .monitor = monitor.name,
            .higher_is_better = monitor.higher_is_better,
            .layers = [screen = screen_] { return layer_cells(screen->layers()); }};
  }

  // Loggers write their own files again.
  void report_removed_files() {
    if (!is_first(in_.group)) return;
    const auto is_removed = [&](const char* name) { return !std::filesystem::exists(folder_.file(name)); };
    const auto report = [&](const char* name, const std::string& consequence) {
      log_warning(folder_.file(name).string() + " was removed during the run" + consequence);
    };
    if (is_removed("log.txt")) {
      configure_log(log_of(in_.group, in_.context.request, folder_));
      report("log.txt", "; its earlier lines are lost");
    }
    if (is_removed("command.txt")) report("command.txt", "");
    if (!is_removed("config.toml")) return;
    folder_.write_config(config_.text());
    report("config.toml", "; it has been written again");
  }

  void write_summary() {
    take_machine();
    folder_.write_summary(summary_);
  }

  void take_machine() {
    const HostInfo host = host_info();
    summary_.cpu_model = host.cpu_model;
    summary_.num_threads = host.num_threads;
    summary_.libtorch_version = TORCH_VERSION;
  }

  // After the fit, or once it has stopped.
  void take_results() {
    take_machine();
    summary_.metrics = screen_->metrics();
    if (const auto& best = screen_->best_value()) {
      summary_.best_name = screen_->monitored();
      summary_.best_value = *best;
      summary_.best_epoch = screen_->best_epoch();
      summary_.higher_is_better = config_.monitor_of(*in_.model).higher_is_better;
    }
    const auto in_folder = [&](const std::filesystem::path& file) {
      return file.empty() ? std::string() : (checkpoints_of("") / file.filename()).string();
    };
    summary_.last_checkpoint = in_folder(checkpoint_->last());
    const std::filesystem::path best_saved = checkpoint_->best();
    summary_.best_checkpoint = in_folder(best_saved);
    if (!best_saved.empty()) {
      const CheckpointInfo info = read_checkpoint_info(best_saved);
      summary_.best_checkpoint_step = info.global_step;
      summary_.best_checkpoint_value = info.monitored_value;
    }
  }

  // Describes the checkpoint that --weights RUN uses if it is not that of the best epoch; else empty.
  std::string best_saved_text() const {
    const std::optional<double>& saved = summary_.best_checkpoint_value;
    if (!saved || summary_.best_name.empty() || *saved == summary_.best_value) return {};
    return "best saved " + metric_text(*saved) + " @ step " + std::to_string(summary_.best_checkpoint_step);
  }

  // Called when everything is durable. `exit_code` is that of the fit; later signals do not change it.
  int finish(int exit_code, bool is_requeued = false) {
    if (exit_code > 128 && !is_requeued) print_resume_command();
    report_lost_output();
    in_.signals.finish(exit_code);
    return exit_code;
  }

  // Above 0 if saving has failed, with checkpoint.on_error = "continue".
  std::int64_t num_unsaved_steps() const {
    const std::filesystem::path last = checkpoint_->last();
    return summary_.global_step -
           (last.empty() ? summary_.resumed_from_step.value_or(0) : read_checkpoint_info(last).global_step);
  }

  // Of a run that was stopped; called by all ranks.
  int finish_stopped(int exit_code) {
    RequeueResult result = RequeueResult::not_wanted;
    if (is_to_requeue(config_)) {
      if (is_first(in_.group)) result = requeue(*in_.job, exit_code, num_unsaved_steps());
      result = static_cast<RequeueResult>(largest(in_.group, static_cast<int>(result)));
    }
    if (result != RequeueResult::refused) return finish(exit_code, result == RequeueResult::requeued);
    if (is_first(in_.group))
      std::cout << "submit with   " << line_to_submit(in_.place, std::filesystem::absolute(folder_.path()))
                << "\n";
    return finish(kRequeueRefusedCode);
  }

  void print_resume_command() const {
    if (is_first(in_.group) && !checkpoint_->last().empty())
      std::cout << "resume with   kindling fit --resume " << shell_word(folder_.path().string()) << "\n";
  }

  FitInputs in_;
  RunConfig& config_;
  Request request_;
  FitFolder folder_;
  std::shared_ptr<ModelCheckpoint> checkpoint_;
  std::shared_ptr<RunKeeper> keeper_;
  std::shared_ptr<Screen> screen_;
  std::shared_ptr<RunReport> report_;  // of rank 0
  DataSummary former_data_{};          // of a resumed run
  RunSummary summary_;
};

}  // namespace

int print_finished(bool is_first, const ResumePlan& plan) {
  if (is_first) std::cout << plan.note << "\n";
  return 0;
}

int run_fit(FitInputs inputs) { return FitRun(std::move(inputs)).run(); }

}  // namespace kindling
