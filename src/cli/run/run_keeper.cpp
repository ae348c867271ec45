#include "cli/run/run_keeper.h"

#include <ATen/Context.h>

#include "cli/run/data_summary.h"
#include "kindling/base/log.h"
#include "kindling/base/number_text.h"
#include "kindling/training/trainer.h"

namespace kindling {

void RunKeeper::on_fit_start(Trainer& trainer, Module&) {
  if (!on_data_) return;
  // Loaders may draw random numbers when they are made.
  at::Generator generator = at::globalContext().defaultGenerator(at::kCPU);
  const at::Tensor state = generator.get_state();
  DataSummary data = summary_of(*trainer.data(), config_.data.name.name);
  data.files = data_files(config_.values());
  on_data_(std::move(data));
  generator.set_state(state);
}

void RunKeeper::on_resume(Trainer&, Module&) {
  folder_.write_config(config_.text());
  is_unrecorded_ = true;
}

void RunKeeper::on_train_batch_end(Trainer&, Module&) {
  if (std::exchange(is_unrecorded_, false)) remember_run(place_, folder_.path());
  warn_slow_save();
}

void RunKeeper::on_epoch_end(Trainer&, Module&, const Record&) {
  folder_.renew_lock();
  warn_slow_save();
}

void RunKeeper::watch_saves(std::shared_ptr<const ModelCheckpoint> checkpoint, double limit_s) {
  checkpoint_ = std::move(checkpoint);
  save_limit_s_ = limit_s;
}

void RunKeeper::warn_slow_save() {
  if (!checkpoint_ || checkpoint_->last_save_s() <= save_limit_s_) return;
  log_warning("saving a checkpoint took " + short_text(checkpoint_->last_save_s(), 3) +
              " s, but SLURM kills a job " + short_text(save_limit_s_, 3) +
              " s (KillWait) after it has asked it to end: request SIGUSR1 earlier than that before the time "
              "limit (sbatch --signal), and save often with checkpoint.asynchronous");
  checkpoint_.reset();
}

void RunKeeper::on_exception(Trainer& trainer, Module&, const std::exception&) {
  failed_step_ = trainer.progress().global_step;
}

}  // namespace kindling
