#include "kindling/training/replay.h"

#include <utility>

#include "checkpoint/saved_keys.h"
#include "device/libtorch_errors.h"
#include "kindling/base/error.h"
#include "kindling/base/number_text.h"
#include "kindling/tensors/checkpoint_file.h"
#include "kindling/training/callback.h"
#include "kindling/training/trainer.h"
#include "training/loop/recorded_run.h"
#include "training/loop/replayed_batches.h"
#include "training/loop/step_watcher.h"
#include "training/loop/trainer_impl.h"

namespace kindling {
namespace {

constexpr const char* kReplay = "replay";

// Hands the records of a replay over to the comparison.
class CheckingLogger : public Logger {
 public:
  explicit CheckingLogger(RecordedRun& run) : run_(run) {}
  void write(const Record& record) override { run_.check(record); }

 private:
  RecordedRun& run_;
};

void require_replayable(const ReplayOptions& options) {
  const std::int64_t until = options.until.value_or(options.step);
  if (options.step < 1 || until < options.step)
    throw ConfigError({.place = kReplay,
                       .found = "step " + std::to_string(options.step) + ", until " + std::to_string(until),
                       .wanted = "a step, at least 1, and a last one that is not before it"});
}

// Those of the run, without what writes and what ends it by the clock.
TrainerOptions options_of_replay(TrainerOptions options) {
  std::erase_if(options.callbacks, [](const auto& callback) { return callback->saver() != nullptr; });
  options.loggers.clear();
  options.max_time.clear();
  options.profile = false;
  options.nonfinite_dir.clear();
  options.profile_dir.clear();
  // The batches that the run passed over are known.
  if (rolls_back(options)) options.on_spike->action = "warn";
  return options;
}

}  // namespace

// Follows a fit up to the last step. As a saver it is called after all other callbacks, as a checkpoint of
// the run was made, and has no place among their states.
class RunFollower : public Callback, private TrainingSaver {
 public:
  RunFollower(RecordedRun& run, const ReplayOptions& options) : run_(run), options_(options) {}

  TrainingSaver* saver() noexcept override { return this; }
  void on_fit_start(Trainer& trainer, Module&) override {
    watcher_.emplace(*trainer.impl_->context, options_.step);
    trainer.impl_->context->observer = &*watcher_;
    pass_over_batches(trainer);
  }
  void on_resume(Trainer& trainer, Module&) override { pass_over_batches(trainer); }
  void on_train_batch_end(Trainer& trainer, Module&) override {
    const TrainerProgress at = trainer.progress();
    if (at.accumulated_batches > 0) return;
    check_state(trainer);
    const auto& max_steps = trainer.options().max_steps;
    const bool ends_epoch = at.batch == at.num_train_batches || (max_steps && at.global_step >= *max_steps);
    const bool validates = at.global_step == last() && run_.has_validation(at.global_step);
    if (!ends_epoch && !validates) stop_after_last(trainer);
  }
  void on_validation_record(Trainer& trainer, Module&, const Record&) override {
    check_state(trainer);
    stop_after_last(trainer);
  }
  void on_epoch_end(Trainer& trainer, Module&, const Record&) override {
    check_state(trainer);
    stop_after_last(trainer);
  }
  std::vector<ReplayedStep> take_steps() { return watcher_->take_steps(); }
  StateDict take_state() { return std::move(state_); }

 private:
  std::int64_t last() const { return options_.until.value_or(options_.step); }
  void stop_after_last(Trainer& trainer) {
    if (trainer.progress().global_step < last()) return;
    if (options_.keep_state) {
      state_ = copy_to(trainer.state_dict(), cpu());
      state_.metadata[saved_keys::kRunId] = new_run_id();
    }
    trainer.request_stop();
    trainer.impl_->context->stop.vote_now();  // all ranks are here
  }
  void pass_over_batches(Trainer& trainer) const {
    trainer.impl_->context->state.passed = run_.passed_batches();
  }
  // Once per step and place: a checkpoint of this step may have been made later in it.
  void check_state(Trainer& trainer) {
    const Progress& at = trainer.impl_->context->state.progress;
    if (run_.has_state(at)) run_.check_state(at, trainer.state_dict());
  }

  RecordedRun& run_;
  const ReplayOptions& options_;
  StateDict state_{};
  std::optional<StepWatcher> watcher_;
};

ReplayResult replay(const TrainerOptions& trainer, const std::shared_ptr<Module>& model, DataModule& data,
                    const ReplayOptions& options) {
  return with_libtorch_errors(kReplay, [&] {
    require_replayable(options);
    ProcessGroup* const group = trainer.process_group.get();
    RecordedRun run(options.run, group);
    run.start_before(options.step - 1);
    if (options.on_start) options.on_start(run.checkpoint(), run.start_step());
    const auto follower = std::make_shared<RunFollower>(run, options);
    TrainerOptions of_replay = options_of_replay(trainer);
    of_replay.callbacks.push_back(follower);
    of_replay.loggers = {std::make_shared<CheckingLogger>(run)};
    Trainer again(std::move(of_replay));
    const FitResult fit = again.fit(model, data, {.resume = run.checkpoint()});
    ReplayResult result{.checkpoint = run.checkpoint(),
                        .start_step = run.start_step(),
                        .steps = follower->take_steps(),
                        .confirmed_step = run.confirmed_step(),
                        .num_records = run.num_records,
                        .num_digests = run.num_digests,
                        .num_checkpoints = run.num_checkpoints,
                        .progress = fit.progress,
                        .state = follower->take_state()};
    if (result.steps.empty())
      throw ConfigError({.place = options.run.string(),
                         .found = "the run ends after step " + std::to_string(fit.progress.global_step),
                         .wanted = "a step that it has trained, not " + std::to_string(options.step)});
    if (group != nullptr) gather_batches(result.steps.front(), *group);
    result.next_check = run.next_check(result.steps.back().global_step);
    return result;
  });
}

void save_step(const ReplayedStep& step, const std::filesystem::path& file) {
  StateDict saved;
  const auto add = [&](const std::string& name, const at::Tensor& tensor) {
    if (tensor.defined()) saved.tensors.emplace_back(name, tensor.contiguous());
  };
  for (std::size_t k = 0; k < step.batches.size(); ++k) {
    const ReplayedBatch& batch = step.batches[k];
    const std::string prefix = k == 0 ? "" : std::to_string(k) + ".";
    for (std::size_t i = 0; i < batch.batch.tensors().size(); ++i)
      add(prefix + "batch." + std::to_string(i), batch.batch.tensors()[i]);
    add(prefix + "indices", batch.indices);
    add(prefix + "outputs", batch.outputs);
    add(prefix + "losses", batch.losses);
  }
  for (const auto& [prefix, state] :
       {std::pair("gradients.", &step.gradients), {"before.", &step.before}, {"after.", &step.after}})
    for (const auto& [name, tensor] : state->tensors) add(prefix + name, tensor);
  saved.metadata = {{"global_step", std::to_string(step.global_step)},
                    {"epoch", std::to_string(step.epoch - 1)},
                    {"batch", std::to_string(step.batch)},
                    {"loss", number_text(step.loss)},
                    {"lr", number_text(step.lr)}};
  save_safetensors(saved, file);
}

}  // namespace kindling
