#pragma once

#include <functional>
#include <optional>
#include <sstream>

#include "kindling/loggers/epoch_table.h"
#include "kindling/training/callback.h"

namespace kindling {

// Logs to the app log, and so to the run's log.txt, where the run took place, its data, the table of epochs
// and how it ended.
class RunLog : public Callback {
 public:
  // `earlier_best` returns the best monitored value of a resumed run before it continues.
  RunLog(EpochTableOptions monitored, std::function<std::optional<double>()> earlier_best);

  void on_resume(Trainer& trainer, Module& model) override;
  void on_fit_start(Trainer& trainer, Module& model) override;
  void on_validation_record(Trainer& trainer, Module& model, const Record& record) override;
  void on_epoch_end(Trainer& trainer, Module& model, const Record& record) override;
  void on_exception(Trainer& trainer, Module& model, const std::exception& error) override;
  void on_fit_end(Trainer& trainer, Module& model, const FitResult& result) override;

 private:
  std::ostringstream lines_;  // of the table, until they are logged
  EpochTable table_;
  std::function<std::optional<double>()> earlier_best_;
};

}  // namespace kindling
