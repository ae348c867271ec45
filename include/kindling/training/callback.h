#pragma once

#include <exception>
#include <string>

#include "kindling/base/export.h"
#include "kindling/loggers/record.h"
#include "kindling/optim/optimizer.h"
#include "kindling/tensors/state_dict.h"
#include "kindling/training/fit_result.h"

namespace kindling {

class Module;
class Trainer;

// What happens around a training, on the trainer's thread. Override what you need; Trainer::request_stop()
// ends the fit after the current step. At each moment the callbacks are called in the order of
// TrainerOptions::callbacks, but a ModelCheckpoint after the others, and when the fit ends before them; what
// one of them throws ends the fit and reaches its caller. The model is trainer.model(), too, the data
// trainer.data().
//
// The moments of a fit, in their order; in brackets those of an own loop, too. The model is in training mode
// from the first on_train_epoch_start on, but in evaluation mode and without gradients from
// on_validation_start to on_validation_end. A callback may evaluate (validate, test, predict), but not train
// with the trainer that calls it:
//
//   on_fit_start
//     [on_validation_start, on_validation_end]                   the sanity check of a fit, without a record
//     [on_resume]                                                with FitOptions::resume
//     [on_train_epoch_start]
//       [on_before_optimizer_step, on_after_optimizer_step]      every step
//       [on_train_batch_end]                                     every batch
//       [on_validation_start, on_validation_end, on_validation_record]      with val_check_interval
//     [on_validation_start, on_validation_end]                   with a validation loader
//     [on_epoch_record], the loggers, [on_epoch_end]
//   on_exception                                                 when something throws
//   on_fit_end
class KINDLING_API Callback {
 public:
  virtual ~Callback();

  virtual void on_fit_start(Trainer&, Module&) {}
  // A saved training has been loaded, this callback's state too, and goes on from trainer.progress().
  virtual void on_resume(Trainer&, Module&) {}
  // Before an epoch's first batch; again when a stopped epoch goes on (then random numbers that are drawn
  // here are given back).
  virtual void on_train_epoch_start(Trainer&, Module&) {}
  // Around each update: before it, gradients are there (clipped, if so) and may be looked at on their device.
  virtual void on_before_optimizer_step(Trainer&, Module&, Optimizer&) {}
  virtual void on_after_optimizer_step(Trainer&, Module&, Optimizer&) {}
  // After every batch; keep it cheap and read no tensor. Trainer::preview() has numbers that have arrived.
  // With accumulate_grad_batches a step may be under way: progress().accumulated_batches.
  virtual void on_train_batch_end(Trainer&, Module&) {}
  virtual void on_validation_start(Trainer&, Module&) {}
  virtual void on_validation_end(Trainer&, Module&) {}
  // After a validation in the middle of an epoch (TrainerOptions::val_check_interval), once the loggers have
  // had its numbers; a validation at an epoch's end is part of the epoch's record.
  virtual void on_validation_record(Trainer&, Module&, const Record&) {}
  // The finished numbers of an epoch, before the loggers have them: add what follows from them here, such as
  // a perplexity, or change them. An epoch that was stopped in its middle has no record.
  virtual void on_epoch_record(Trainer&, Module&, Record&) {}
  // The same numbers once the loggers have had them; the trainer's progress stands at the next epoch.
  virtual void on_epoch_end(Trainer&, Module&, const Record&) {}
  // After an error of the fit, which goes on to the caller afterwards; on_fit_end follows.
  virtual void on_exception(Trainer&, Module&, const std::exception&) {}
  // However the fit has ended. What these two throw after an error is only logged.
  virtual void on_fit_end(Trainer&, Module&, const FitResult&) {}

  // What has to be there again when a training goes on from a saved state: tensors and small values under
  // names of the callback's own. Loading gets what saving has written, after on_fit_start.
  virtual void save_state(StateDict&) const {}
  virtual void load_state(const StateDict&) {}
};

}  // namespace kindling
