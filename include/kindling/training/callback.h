#pragma once

#include <cstdint>
#include <exception>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "kindling/base/export.h"
#include "kindling/loggers/record.h"
#include "kindling/optim/optimizer.h"
#include "kindling/tensors/state_dict.h"
#include "kindling/training/fit_result.h"
#include "kindling/training/rollback.h"

namespace kindling {

class Module;
class Trainer;

// The role of a callback that saves the run; see Callback::saver().
class KINDLING_API TrainingSaver {
 public:
  virtual ~TrainingSaver() = default;
  // Data-parallel training: whether this rank requests a save now. Asked with the votes of each step.
  virtual bool save_requested() { return false; }
  // Called on all ranks between two steps after some rank has requested a save.
  virtual void on_save_request() {}
  // The best checkpoint so far, for FitResult::best_checkpoint; empty: none.
  virtual std::filesystem::path best() const { return {}; }
  // Waits until all saves are durable, and returns the latest checkpoint of the run, for a rollback; empty:
  // none. Asked on all ranks; that of rank 0 counts.
  virtual std::filesystem::path latest() { return {}; }
};

// The role of a callback that averages the model's weights; see Callback::averaging(). The averages
// are a second set of values for the same tensors: while they are applied, they replace the model's own
// values, and its parameters and buffers stay the same objects.
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
  // Applies the averages to trainer.model(). Returns false and does nothing if there are none yet or they are
  // already applied.
  virtual bool apply(Trainer& trainer) = 0;
  // Puts the model's own values back.
  virtual void restore() = 0;
  virtual bool is_applied() const noexcept = 0;
  // While the averages are applied: replaces their values in a state_dict() of the model by the model's own.
  virtual void put_own_values(StateDict& model_state) const = 0;
  // The prefix of the averages' names in Callback::save_state(), which the model's names follow; empty while
  // the averages are not a complete model.
  virtual std::string averages_prefix() const = 0;
};

// Reacts to the events of a run, on the trainer's thread. Override the functions that you need;
// Trainer::request_stop() ends the fit after the current step. Callbacks are called in the order of
// TrainerOptions::callbacks, except that savers (saver()) come after the others, and before them when the fit
// ends. An exception thrown by a callback ends the fit and reaches its caller. The model passed is
// trainer.model(); the data is trainer.data().
//
// The events of a fit in order; custom training loops get those in brackets. The model is in training mode
// from the first on_train_epoch_start on, except from on_validation_start to on_validation_end, where it is
// in evaluation mode and without gradients. A callback may evaluate (validate, test, predict), but must not
// train with the trainer that calls it:
//
//   on_fit_start
//     [on_validation_start, on_validation_end]                   the sanity check of a fit, without a record
//     [on_resume]                                                with FitOptions::resume
//     on_resume, on_rollback, then again from on_train_epoch_start    after a spike, with action "rollback"
//     [on_train_epoch_start]
//       [on_before_optimizer_step, on_after_optimizer_step]      every step
//       [on_train_batch_end]                                     every batch
//       [on_validation_start, on_validation_end, on_validation_record]      with val_check_interval
//     [on_validation_start, on_validation_end]                   with a validation loader
//                        between the two: [on_validation_batch_end] every batch, except in the sanity check
//     [on_epoch_record], the loggers, [on_epoch_end]
//   on_exception                                                 when something throws
//   on_fit_end
class KINDLING_API Callback {
 public:
  virtual ~Callback();

  virtual void on_fit_start(Trainer&, Module&) {}
  // After a saved run has been loaded, including this callback's state. It continues from trainer.progress().
  virtual void on_resume(Trainer&, Module&) {}
  // After on_resume, when the fit has gone back because of a spike (SpikeOptions::action "rollback"): what
  // was computed since that checkpoint is void. A program that takes part in the training, such as a solver,
  // must go back, too. States are loaded if they had been saved, so one that was empty must be cleared here.
  virtual void on_rollback(Trainer&, Module&, const Rollback&) {}
  // Before an epoch's first batch, and again when a stopped epoch resumes; random numbers that are drawn then
  // are not consumed.
  virtual void on_train_epoch_start(Trainer&, Module&) {}
  // Before and after each update. Before it, the (clipped) gradients may be read or changed on their device.
  virtual void on_before_optimizer_step(Trainer&, Module&, Optimizer&) {}
  virtual void on_after_optimizer_step(Trainer&, Module&, Optimizer&) {}
  // After every batch. Keep it cheap and do not read tensors; Trainer::preview() returns the values that have
  // arrived on the host. With accumulate_grad_batches, progress().accumulated_batches > 0 within a step.
  virtual void on_train_batch_end(Trainer&, Module&) {}
  virtual void on_validation_start(Trainer&, Module&) {}
  // After every batch of a fit's validation, not of the sanity check; `batch` from 1. As for
  // on_train_batch_end: keep it cheap and do not read tensors. It must not evaluate.
  virtual void on_validation_batch_end(Trainer&, Module&, std::int64_t /*batch*/,
                                       std::int64_t /*num_batches*/) {}
  virtual void on_validation_end(Trainer&, Module&) {}
  // After a validation within an epoch (TrainerOptions::val_check_interval) and after the loggers got its
  // values. A validation at the end of an epoch is part of the epoch's record.
  virtual void on_validation_record(Trainer&, Module&, const Record&) {}
  // The record of an epoch before the loggers get it: add derived values here, such as a perplexity, or
  // change values. An epoch that was stopped before its end has no record.
  virtual void on_epoch_record(Trainer&, Module&, Record&) {}
  // The same record after the loggers got it; trainer.progress() is at the start of the next epoch.
  virtual void on_epoch_end(Trainer&, Module&, const Record&) {}
  // After an error that ends the fit; on_fit_end follows, then the caller gets the error.
  virtual void on_exception(Trainer&, Module&, const std::exception&) {}
  // At the end of every fit, finished, stopped or failed. After an error, exceptions of these two are only
  // logged.
  virtual void on_fit_end(Trainer&, Module&, const FitResult&) {}

  // Save and load what a resumed run needs: tensors and short texts under names of your choice. load_state()
  // gets what save_state() wrote, after on_fit_start.
  virtual void save_state(StateDict&) const {}
  virtual void load_state(const StateDict&) {}
  // The name under which checkpoints store that state. A custom name survives a renamed class; the
  // default is the compiler's name of the class.
  virtual std::string type_name() const;

  // Roles. The shipped callbacks take theirs through these functions alone; most callbacks have none. The
  // returned object belongs to the callback and must stay the same.
  //
  // A saver is called after the other callbacks, so that a checkpoint contains what they have done, and
  // before them when the fit ends. Its own state is not saved.
  virtual TrainingSaver* saver() noexcept { return nullptr; }
  virtual WeightAveraging* averaging() noexcept { return nullptr; }
  // True if this callback stops a resumed run again by itself. The run then does not save an early stop that
  // is waiting for min_epochs or min_steps.
  virtual bool stops_training() const { return false; }

  // Data-parallel training: the options that must be the same on all ranks, as names and texts, such as
  // value_texts(options). A fit compares them at its start and names the first one that differs.
  virtual std::vector<std::pair<std::string, std::string>> shared_options() const { return {}; }
};

}  // namespace kindling
