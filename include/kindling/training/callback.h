#pragma once

#include "kindling/base/export.h"
#include "kindling/loggers/record.h"
#include "kindling/training/fit_result.h"

namespace kindling {

class Module;
class Trainer;

// What happens around a fit, on the trainer's thread. Override what you need; request_stop() ends the fit
// after the current step. What a callback throws ends the fit and reaches its caller.
class KINDLING_API Callback {
 public:
  virtual ~Callback();

  virtual void on_fit_start(Trainer&, Module&) {}
  virtual void on_train_epoch_start(Trainer&, Module&) {}
  // After every step; keep it cheap and read no tensor. Trainer::preview() has numbers that have arrived.
  virtual void on_train_batch_end(Trainer&, Module&) {}
  // After the epoch's validation, with its finished numbers; loggers have had them.
  virtual void on_epoch_end(Trainer&, Module&, const Record&) {}
  virtual void on_fit_end(Trainer&, Module&, const FitResult&) {}
};

}  // namespace kindling
