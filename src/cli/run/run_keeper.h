#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "cli/config/config_tables.h"
#include "cli/run/fit_processes.h"
#include "kindling/training/callback.h"
#include "kindling/training/model_checkpoint.h"
#include "runs/run_folder.h"

namespace kindling {

// Writes the config of a resumed run once the saved state has been loaded. After the first step, files that
// the run does not resume from have been put aside, and a restart of its processes uses the latest checkpoint
// of the run instead of the one named on the command line. Knows the step at which a fit has failed. Warns
// once of saves that take longer than the launcher waits for the end of a process.
class RunKeeper : public Callback {
 public:
  RunKeeper(FitFolder& folder, const ConfigTables& config, LaunchPlace place)
      : folder_(folder), config_(config), place_(std::move(place)) {}
  void on_fit_start(Trainer& trainer, Module& model) override;
  void on_resume(Trainer& trainer, Module& model) override;
  void on_train_batch_end(Trainer& trainer, Module& model) override;
  void on_epoch_end(Trainer& trainer, Module& model, const Record& record) override;
  void on_exception(Trainer& trainer, Module& model, const std::exception& error) override;
  const std::optional<std::int64_t>& failed_step() const noexcept { return failed_step_; }
  void watch_saves(std::shared_ptr<const ModelCheckpoint> checkpoint, double limit_s);
  // Called with the data of the run once the trainer has its loaders.
  void notify_of_data(std::function<void(DataSummary)> on_data) { on_data_ = std::move(on_data); }

 private:
  void warn_slow_save();

  FitFolder& folder_;
  const ConfigTables& config_;
  const LaunchPlace place_;
  std::function<void(DataSummary)> on_data_{};
  std::shared_ptr<const ModelCheckpoint> checkpoint_{};  // nullptr: saves are not watched
  double save_limit_s_ = 0;
  bool is_unrecorded_ = false;  // for a restart
  std::optional<std::int64_t> failed_step_;
};

}  // namespace kindling
