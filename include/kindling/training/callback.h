#pragma once

#include <exception>
#include <filesystem>
#include <string>

#include "kindling/base/export.h"
#include "kindling/loggers/record.h"
#include "kindling/optim/optimizer.h"
#include "kindling/tensors/state_dict.h"
#include "kindling/training/fit_result.h"

namespace kindling {

class Module;
class Trainer;

// The role of a callback that saves the run; see Callback::saver().
class KINDLING_API TrainingSaver {
 public:
  virtual ~TrainingSaver() = default;
  // Data-parallel training: whether this rank requests a save now. Asked with the votes of each step.
  virtual bool save_requested() { return false; }
  // Some rank has requested a save; called on all ranks between two steps.
  virtual void on_save_request() {}
  // The best checkpoint so far, for FitResult::best_checkpoint; empty: none.
  virtual std::filesystem::path best() const { return {}; }
};

// The role of a callback that averages the model's weights; see Callback::averaging(). The averages
// are another set of values of the same tensors: while they are applied, the model has them in place of its
// own values, and its parameters and buffers stay the same objects.
class KINDLING_API WeightAveraging {
 public:
  virtual ~WeightAveraging() = default;
  // After each optimizer step, before a checkpoint could be saved.
  virtual void after_step(Trainer& trainer, Module& model) = 0;
  // After the training part of an epoch, before its validation.
  virtual void after_epoch(Trainer& trainer, Module& model) = 0;
  // Whether the validations of a fit see the averages.
  virtual bool evaluates() const noexcept = 0;
  // Whether the averages stay in the model when the fit has finished or was stopped.
  virtual bool applies_at_end() const noexcept { return false; }
  // Applies the averages to trainer.model(). False, and nothing happens, while there are none or they are
  // applied already.
  virtual bool apply(Trainer& trainer) = 0;
  // Puts the model's own values back.
  virtual void restore() = 0;
  virtual bool is_applied() const noexcept = 0;
  // While the averages are applied: replaces their values in a state_dict() of the model by its own.
  virtual void put_own_values(StateDict& model_state) const = 0;
  // What the names of the averages begin with in Callback::save_state(), followed by the model's names; empty
  // while they are no complete model.
  virtual std::string averages_prefix() const = 0;
};

// What happens around a training, on the trainer's thread. Override what you need; Trainer::request_stop()
// ends the fit after the current step. At each moment the callbacks are called in the order of
// TrainerOptions::callbacks, but savers (saver()) after the others, and before them when the fit ends; what
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
  // The name under which checkpoints store that state. A custom name survives a renamed class; the
  // default is the compiler's name of the class.
  virtual std::string type_name() const;

  // Roles, which the shipped callbacks take through these functions alone; most callbacks have none. What is
  // returned belongs to the callback and stays the same.
  //
  // A saver is called after the other callbacks at each moment, and before them when the fit ends: a
  // checkpoint contains what the others have done. Its own state is not saved.
  virtual TrainingSaver* saver() noexcept { return nullptr; }
  virtual WeightAveraging* averaging() noexcept { return nullptr; }
  // Whether this callback by itself ends the run again when it is resumed. An early stop that waits for
  // min_epochs or min_steps is then not saved with the run.
  virtual bool stops_training() const { return false; }
};

}  // namespace kindling
