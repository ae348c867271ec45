#pragma once

#include "kindling/training/callback.h"

namespace kindling {

// Logs to the app log, and so to the run's log.txt, where the run took place, its data, every epoch and how
// it ended.
class RunLog : public Callback {
 public:
  void on_fit_start(Trainer& trainer, Module& model) override;
  void on_validation_record(Trainer& trainer, Module& model, const Record& record) override;
  void on_epoch_end(Trainer& trainer, Module& model, const Record& record) override;
  void on_exception(Trainer& trainer, Module& model, const std::exception& error) override;
  void on_fit_end(Trainer& trainer, Module& model, const FitResult& result) override;
};

}  // namespace kindling
