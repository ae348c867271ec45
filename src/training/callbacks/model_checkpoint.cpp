#include "kindling/training/model_checkpoint.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <utility>

#include "checkpoint/checkpoint_file.h"
#include "checkpoint/save_thread.h"
#include "kindling/base/error.h"
#include "kindling/base/log.h"
#include "kindling/base/number_text.h"
#include "kindling/checkpoint/checkpoint_folder.h"
#include "kindling/tensors/checkpoint_file.h"
#include "kindling/training/trainer.h"
#include "nn/monitored_value.h"
#include "training/callbacks/state_copy.h"
#include "training/state/train_state.h"

namespace kindling {
namespace {

using SaveClock = std::chrono::steady_clock;

ModelCheckpointOptions checked(ModelCheckpointOptions options) {
  validate(options, "ModelCheckpoint");
  return options;
}

}  // namespace

class ModelCheckpoint::Impl {
 public:
  explicit Impl(ModelCheckpointOptions asked) : options(std::move(asked)) {}

  // Own loops have no on_fit_start, and may begin another training.
  void open(const Trainer& trainer, const Module& model) {
    if (is_open_ && run_id_ == trainer.run_id()) return;
    close();
    group_ = trainer.options().process_group;
    monitor_ = monitor_of(options.monitor, options.mode, model, "ModelCheckpoint");
    run_id_ = trainer.run_id();
    if (!group_ || group_->rank() == 0) open_folder();
    is_open_ = true;
    latest_time_ = SaveClock::now();
    saved_.reset();
    is_waiting_ = false;
    has_save_request_ = has_looked_ = false;
  }

  // A former save that has failed is heard of here.
  void check() {
    if (thread_) log_on_failure([&] { thread_->check(); });
  }

  // Between two steps. A save that falls due while the one before is being written is made as soon as that is
  // done: the training does not wait.
  bool is_due(const Progress& at) {
    if (group_) {
      const bool is_asked = std::exchange(has_save_request_, false) && is_requested_by_any(/*can_wait=*/true);
      return is_asked || is_step_to_save(at);
    }
    if (is_step_to_save(at)) is_waiting_ = true;
    return save_requested() && !is_writing();
  }

  // Whether a save has fallen due here that does not hang on steps, or has not been made yet.
  bool save_requested() {
    if (is_open_ && (requested.exchange(false, std::memory_order_relaxed) || is_time())) is_waiting_ = true;
    return is_waiting_;
  }
  void on_save_request() { has_save_request_ = true; }

  void save(Trainer& trainer, const Record* record = nullptr) {
    finish();  // it may have failed, and its copy is needed again
    is_waiting_ = false;
    requested.store(false, std::memory_order_relaxed);  // what is asked for until here is made here
    const Progress at = trainer.progress();
    if (is_saved_by_all(at)) return;
    latest_time_ = SaveClock::now();
    log_on_failure([&] { write(trainer, at, record); });
  }

  void resume(const Trainer& trainer) {
    finish();
    open(trainer, *trainer.model());
    saved_ = trainer.progress();
    is_waiting_ = false;
    if (folder_) folder_->set_aside_after(run_id_, saved_->global_step);
  }

  // Until everything is durable.
  void finish() {
    if (thread_) log_on_failure([&] { thread_->finish(); });
  }
  void close() {
    thread_.reset();
    folder_.reset();
    is_open_ = has_failed = false;
  }
  bool is_open() const { return is_open_; }
  // Whether a save has fallen due that does not hang on steps; of several processes, in any of them.
  bool is_asked() {
    if (!group_) return requested.exchange(false, std::memory_order_relaxed) || is_waiting_;
    return is_requested_by_any(/*can_wait=*/false);
  }

  // What the options name and the records do not have would have no best, and nobody would know. A callback
  // may add it in some epochs only.
  void look_for_value(const Trainer& trainer, const Record& record) {
    const bool is_validated = record.epoch % trainer.options().check_val_every_n_epoch == 0;
    if (options.monitor.empty() || has_looked_ || !is_validated || record.kind != Record::Kind::epoch ||
        record.find("skipped_steps") != nullptr)
      return;
    has_looked_ = true;
    try {
      value_of(record, monitor_.name, "ModelCheckpoint");
    } catch (const ConfigError& error) {
      log_warning(std::string(error.what()) + "; without it no checkpoint is the best");
    }
  }

  bool higher_is_better() const { return monitor_.higher_is_better; }

  const ModelCheckpointOptions options;
  std::atomic<bool> requested = false;
  bool has_failed = false;  // the fit

 private:
  void write(Trainer& trainer, const Progress& at, const Record* record) {
    StateDict state;
    try {
      state = trainer.state_dict();
    } catch (const CheckpointError&) {
      if (trainer.stop_token().reason() == FitReason::diverged) return;  // no place to go on from
      throw;
    } catch (const InsideStep&) {
      if (has_failed) return;  // there: the latest checkpoint is what is left
      throw;
    }
    const double* value = record == nullptr ? nullptr : record->find(monitor_.name);
    if (value != nullptr) {
      state.metadata[kMonitorNameKey] = monitor_.name;
      state.metadata[kMonitorValueKey] = number_text(*value);
      state.metadata[kMonitorModeKey] = monitor_.higher_is_better ? "max" : "min";
    }
    saved_ = at;
    if (!folder_) return;  // another process writes
    const std::filesystem::path file = folder_->file_of(at.global_step);
    const auto write_and_prune = [file, &folder = *folder_, run_id = run_id_](const StateDict& of) {
      save_checkpoint(of, file);
      folder.prune(run_id);
    };
    if (thread_) {
      copy_.take(state);
      thread_->start([write_and_prune, &copy = copy_] { write_and_prune(copy.state()); });
    } else {
      write_and_prune(state);
    }
  }

  // Asked in all processes at once. While process 0 is writing, wishes stand, unless they cannot wait.
  bool is_requested_by_any(bool can_wait) {
    const auto all = group_->all_gather(can_wait && is_writing() ? "later" : save_requested() ? "1" : "0");
    return all.front() != "later" && std::ranges::find(all, "1") != all.end();
  }

  // A save that has failed has done so in process 0 alone.
  bool is_saved_by_all(const Progress& at) {
    if (!group_) return saved_ == at;
    const auto all = group_->all_gather(saved_ == at ? "1" : "0");
    return std::ranges::find(all, "0") == all.end();
  }

  bool is_writing() { return thread_ && thread_->is_busy(); }

  bool is_step_to_save(const Progress& at) const {
    return options.every_n_steps && at.global_step % *options.every_n_steps == 0;
  }

  bool is_time() const {
    return options.every_minutes && SaveClock::now() - latest_time_ >=
                                        std::chrono::duration<double, std::ratio<60>>(*options.every_minutes);
  }

  void open_folder() {
    folder_.emplace(options.dirpath, CheckpointRetention{.keep_last = options.keep_last,
                                                         .keep_best = options.keep_best,
                                                         .higher_is_better = monitor_.higher_is_better});
    require_own_folder();
    if (options.asynchronous) thread_.emplace();
  }

  // Files of different trainings would have the same names.
  void require_own_folder() {
    for (const CheckpointInfo& info : list_checkpoints(options.dirpath))
      if (info.run_id != run_id_) {
        folder_.reset();
        throw CheckpointError(
            {.place = options.dirpath.string(),
             .found = "it holds checkpoints of another training (" + info.path.filename().string() + ")",
             .wanted = "a folder of this training's own",
             .remedy = "go on with that training (FitOptions::resume), choose another "
                       "dirpath, or move its checkpoints away"});
      }
  }

  // By options.on_error.
  template <class Call>
  void log_on_failure(const Call& call) {
    try {
      call();
    } catch (const std::exception& error) {
      saved_.reset();
      if (options.on_error == "stop") throw;
      log_error(std::string("no checkpoint, the training goes on without: ") + error.what());
    }
  }

  Module::Monitor monitor_;
  std::string run_id_;
  std::shared_ptr<ProcessGroup> group_;
  bool is_open_ = false;
  std::optional<CheckpointFolder> folder_;  // of process 0
  std::optional<Progress> saved_;           // where the latest checkpoint stands
  SaveClock::time_point latest_time_;
  bool is_waiting_ = false;        // a save that has fallen due
  bool has_save_request_ = false;  // of one of several processes
  bool has_looked_ = false;        // for the monitored value
  StateCopy copy_;                 // what the thread writes
  std::optional<SaveThread> thread_;
};

ModelCheckpoint::ModelCheckpoint(ModelCheckpointOptions options)
    : impl_(std::make_unique<Impl>(checked(std::move(options)))) {}
ModelCheckpoint::~ModelCheckpoint() = default;

void ModelCheckpoint::request_save() noexcept { impl_->requested.store(true, std::memory_order_relaxed); }

bool ModelCheckpoint::save_requested() { return impl_->save_requested(); }
void ModelCheckpoint::on_save_request() noexcept { impl_->on_save_request(); }

void ModelCheckpoint::finish() {
  impl_->finish();
  impl_->close();
}

std::filesystem::path ModelCheckpoint::last() const {
  if (!std::filesystem::is_directory(impl_->options.dirpath)) return {};
  const auto found = newest_valid_checkpoint(impl_->options.dirpath);
  return found ? found->path : std::filesystem::path();
}

std::filesystem::path ModelCheckpoint::best() const {
  if (!std::filesystem::is_directory(impl_->options.dirpath)) return {};
  const auto found = best_valid_checkpoint(impl_->options.dirpath, impl_->higher_is_better());
  return found ? found->path : std::filesystem::path();
}

void ModelCheckpoint::on_fit_start(Trainer& trainer, Module& model) {
  impl_->close();
  impl_->open(trainer, model);
}

void ModelCheckpoint::on_resume(Trainer& trainer, Module&) { impl_->resume(trainer); }

void ModelCheckpoint::on_train_batch_end(Trainer& trainer, Module& model) {
  impl_->open(trainer, model);
  impl_->check();
  const TrainerProgress at = trainer.progress();
  if (at.accumulated_batches == 0 && impl_->is_due(at)) impl_->save(trainer);
}

void ModelCheckpoint::on_validation_record(Trainer& trainer, Module& model, const Record& record) {
  on_epoch_end(trainer, model, record);
}

void ModelCheckpoint::on_epoch_end(Trainer& trainer, Module& model, const Record& record) {
  impl_->open(trainer, model);
  impl_->check();
  impl_->look_for_value(trainer, record);
  const std::int64_t every = impl_->options.every_n_epochs;
  if (impl_->is_asked() || (every > 0 && record.epoch % every == 0)) impl_->save(trainer, &record);
}

void ModelCheckpoint::on_fit_end(Trainer& trainer, Module&, const FitResult& result) {
  if (!impl_->is_open()) return;
  const struct Closing {
    Impl& impl;
    ~Closing() { impl.close(); }
  } closing{*impl_};
  // After an error the other processes are gone, and with them their part of what is saved.
  impl_->has_failed = result.status == FitStatus::failed;
  const bool is_lost = impl_->has_failed && trainer.options().process_group;
  if (result.status != FitStatus::diverged && !is_lost) impl_->save(trainer);
  impl_->finish();
}

}  // namespace kindling
