#include "cli/run/run_keeper.h"

#include <ATen/Context.h>

#include "cli/run/data_summary.h"
#include "kindling/training/trainer.h"

namespace kindling {

void RunKeeper::on_fit_start(Trainer& trainer, Module&) {
  if (!on_data_) return;
  // Loaders may draw random numbers when they are made.
  at::Generator generator = at::globalContext().defaultGenerator(at::kCPU);
  const at::Tensor state = generator.get_state();
  on_data_(summary_of(*trainer.data(), config_.data.name.name));
  generator.set_state(state);
}

void RunKeeper::on_resume(Trainer&, Module&) {
  folder_.write_config(config_.text());
  is_unrecorded_ = true;
}

void RunKeeper::on_train_batch_end(Trainer&, Module&) {
  if (std::exchange(is_unrecorded_, false)) remember_run(place_, folder_.path());
}

void RunKeeper::on_epoch_end(Trainer&, Module&, const Record&) { folder_.renew_lock(); }

void RunKeeper::on_exception(Trainer& trainer, Module&, const std::exception&) {
  failed_step_ = trainer.progress().global_step;
}

}  // namespace kindling
