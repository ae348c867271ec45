#pragma once

#include "kindling/training/callback.h"

namespace kindling {

// Tells the app log, and so the run's log.txt, what one asks for later: where it ran, on what data, every
// epoch, how it ended.
class RunLog : public Callback {
 public:
  void on_fit_start(Trainer& trainer, Module& model) override;
  void on_validation_record(Trainer& trainer, Module& model, const Record& record) override;
  void on_epoch_end(Trainer& trainer, Module& model, const Record& record) override;
  void on_exception(Trainer& trainer, Module& model, const std::exception& error) override;
  void on_fit_end(Trainer& trainer, Module& model, const FitResult& result) override;
};

}  // namespace kindling
