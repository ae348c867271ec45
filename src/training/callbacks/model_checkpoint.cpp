#include "kindling/training/model_checkpoint.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <utility>

#include "checkpoint/checkpoint_file.h"
#include "checkpoint/save_thread.h"
#include "checkpoint/saved_keys.h"
#include "kindling/base/error.h"
#include "kindling/base/log.h"
#include "kindling/base/number_text.h"
#include "kindling/checkpoint/checkpoint_folder.h"
#include "kindling/config/printer.h"
#include "kindling/tensors/checkpoint_file.h"
#include "kindling/training/trainer.h"
#include "nn/monitored_value.h"
#include "tensors/state_tensors.h"
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

  // Custom training loops have no on_fit_start, and may start another run.
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

  // Reports a failure of the previous save.
  void check() {
    if (thread_) log_on_failure([&] { thread_->check(); });
  }

  // True if a save is due between two steps. A save that becomes due while the previous one is being written
  // starts as soon as that is finished; training does not wait.
  bool is_due(const Progress& at) {
    if (group_) {
      const bool is_asked = std::exchange(has_save_request_, false) && is_requested_by_any(/*can_wait=*/true);
      return is_asked || is_step_to_save(at);
    }
    if (is_step_to_save(at)) is_waiting_ = true;
    return save_requested() && !is_writing();
  }

  // True if a save is due on this rank: one that does not depend on steps, or one that was postponed.
  bool save_requested() {
    if (is_open_ && (requested.exchange(false, std::memory_order_relaxed) || is_time())) is_waiting_ = true;
    return is_waiting_;
  }
  void on_save_request() { has_save_request_ = true; }

  void save(Trainer& trainer, const Record* record = nullptr) {
    finish();  // it may have failed, and its copy is about to be reused
    is_waiting_ = false;
    requested.store(false, std::memory_order_relaxed);  // this save fulfils all requests so far
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

  // Waits until everything is durable.
  void finish() {
    if (thread_) log_on_failure([&] { thread_->finish(); });
  }
  void close() {
    thread_.reset();
    folder_.reset();
    is_open_ = has_failed = false;
  }
  bool is_open() const { return is_open_; }
  // True if a save is due that does not depend on steps, on any rank.
  bool is_asked() {
    if (!group_) return requested.exchange(false, std::memory_order_relaxed) || is_waiting_;
    return is_requested_by_any(/*can_wait=*/false);
  }

  // Warns once if the records do not have the monitored value, because then no checkpoint is ever the best. A
  // callback may add the value in some epochs only.
  void look_for_value(const Trainer& trainer, const Record& record) {
    const bool is_validated = record.epoch % trainer.options().check_val_every_n_epoch == 0;
    if (options.monitor.empty() || has_looked_ || !is_validated || record.kind != Record::Kind::epoch ||
        record.find("skipped_steps") != nullptr)
      return;
    has_looked_ = true;
    try {
      value_of(record, monitor_.name, "ModelCheckpoint");
    } catch (const ConfigError& error) {
      log_warning(std::string(error.what()) + "; without this value no checkpoint is marked as the best");
    }
  }

  bool higher_is_better() const { return monitor_.higher_is_better; }

  const ModelCheckpointOptions options;
  std::map<std::string, std::string> metadata{};  // of the program
  std::atomic<bool> requested = false;
  std::atomic<double> last_save_s = 0;  // set by the thread that writes
  bool has_failed = false;              // the fit

 private:
  void write(Trainer& trainer, const Progress& at, const Record* record) {
    StateDict state;
    try {
      state = trainer.state_dict();
    } catch (const CheckpointError&) {
      if (trainer.stop_token().reason() == FitReason::diverged) return;  // nothing to resume from
      throw;
    } catch (const InsideStep&) {
      if (has_failed) return;  // within a step: the latest checkpoint stays the last one
      throw;
    }
    const double* value = record == nullptr ? nullptr : record->find(monitor_.name);
    if (value != nullptr) {
      state.metadata[saved_keys::kMonitorName] = monitor_.name;
      state.metadata[saved_keys::kMonitorValue] = number_text(*value);
      state.metadata[saved_keys::kMonitorMode] = monitor_.higher_is_better ? "max" : "min";
    }
    saved_ = at;
    for (const auto& [name, text] : metadata) state.metadata[saved_keys::kProgram + name] = text;
    if (!folder_) return;  // rank 0 writes
    folder_->renew_lock();
    const std::filesystem::path file = folder_->file_of(at.global_step);
    const auto write_and_prune = [this, file, begin = latest_time_, run_id = run_id_](const StateDict& of) {
      save_checkpoint(of, file);
      last_save_s = std::chrono::duration<double>(SaveClock::now() - begin).count();
      folder_->prune(run_id);
    };
    if (thread_) {
      copy_.take(state);
      thread_->start([write_and_prune, &copy = copy_] { write_and_prune(copy.state()); });
    } else {
      write_and_prune(state);
    }
  }

  // Collective. While rank 0 is writing, requests are postponed, unless they cannot wait.
  bool is_requested_by_any(bool can_wait) {
    const auto all = group_->all_gather(can_wait && is_writing() ? "later" : save_requested() ? "1" : "0");
    return all.front() != "later" && std::ranges::find(all, "1") != all.end();
  }

  // A failed save has failed on rank 0 only.
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
    folder_.emplace(options.dirpath,
                    CheckpointRetention{.keep_last = options.keep_last,
                                        .keep_best = options.keep_best,
                                        .higher_is_better = monitor_.higher_is_better,
                                        .keep_every_n_steps = options.keep_every_n_steps.value_or(0)});
    require_own_folder();
    if (options.asynchronous) thread_.emplace();
  }

  // Files of different runs would have the same names.
  void require_own_folder() {
    for (const CheckpointInfo& info : list_checkpoints(options.dirpath))
      if (info.run_id != run_id_) {
        folder_.reset();
        throw CheckpointError(
            {.place = options.dirpath.string(),
             .found = "it contains checkpoints of another run (" + info.path.filename().string() + ")",
             .wanted = "a directory for this run alone",
             .remedy = "resume that run (FitOptions::resume), choose another "
                       "dirpath, or move its checkpoints away"});
      }
  }

  // Rethrows or logs an error, depending on options.on_error.
  template <class Call>
  void log_on_failure(const Call& call) {
    try {
      call();
    } catch (const std::exception& error) {
      saved_.reset();
      if (options.on_error == "stop") throw;
      log_error(std::string("saving the checkpoint failed; training continues: ") + error.what());
    }
  }

  Module::Monitor monitor_;
  std::string run_id_;
  std::shared_ptr<ProcessGroup> group_;
  bool is_open_ = false;
  std::optional<CheckpointFolder> folder_;  // on rank 0
  std::optional<Progress> saved_;           // progress of the latest checkpoint
  SaveClock::time_point latest_time_;
  bool is_waiting_ = false;        // a save is due
  bool has_save_request_ = false;  // some rank has requested a save
  bool has_looked_ = false;        // has checked for the monitored value
  StateCopy copy_;                 // the copy that the thread writes
  std::optional<SaveThread> thread_;
};

ModelCheckpoint::ModelCheckpoint(ModelCheckpointOptions options)
    : impl_(std::make_unique<Impl>(checked(std::move(options)))) {}
ModelCheckpoint::~ModelCheckpoint() = default;

void ModelCheckpoint::request_save() noexcept { impl_->requested.store(true, std::memory_order_relaxed); }

double ModelCheckpoint::last_save_s() const noexcept { return impl_->last_save_s; }

bool ModelCheckpoint::save_requested() { return impl_->save_requested(); }
void ModelCheckpoint::on_save_request() noexcept { impl_->on_save_request(); }

std::filesystem::path ModelCheckpoint::latest() {
  impl_->finish();
  return last();
}

void ModelCheckpoint::set_metadata(std::map<std::string, std::string> texts) {
  impl_->metadata = std::move(texts);
}

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
  if (at.accumulated_batches == 0 && impl_->is_due(at) && !trainer.will_go_back()) impl_->save(trainer);
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
  // After an error the other ranks are gone, and with them their part of the state.
  impl_->has_failed = result.status == FitStatus::failed;
  const bool is_lost = impl_->has_failed && trainer.options().process_group;
  if (result.status != FitStatus::diverged && !is_lost) impl_->save(trainer);
  impl_->finish();
}

std::vector<std::pair<std::string, std::string>> ModelCheckpoint::shared_options() const {
  auto texts = value_texts(impl_->options);
  std::erase_if(texts, [](const auto& option) { return option.first == "every_minutes"; });  // ranks vote
  return texts;
}

}  // namespace kindling
