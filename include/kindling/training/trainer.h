#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "kindling/base/export.h"
#include "kindling/data/data_module.h"
#include "kindling/device/device.h"
#include "kindling/nn/layer_summary.h"
#include "kindling/nn/module.h"
#include "kindling/tensors/batch.h"
#include "kindling/training/callback.h"
#include "kindling/training/fit_options.h"
#include "kindling/training/fit_result.h"
#include "kindling/training/prediction.h"
#include "kindling/training/stop_token.h"
#include "kindling/training/train_batches.h"
#include "kindling/training/trainer_options.h"
#include "kindling/training/trainer_progress.h"

namespace kindling {

// Trains, evaluates and runs a model: moves it and its batches to the first GPU, keeps the loss log on the
// device and copies it to the host once per epoch. Several trainers may run at once in separate threads, each
// with its own model; calling one of them, or using its model, from a second thread throws Error.
//
// Between prepare_batch() and the end of an epoch nothing reads a tensor on the host. Throws ConfigError for
// options, DataError, DeviceError; errors of LibTorch are rethrown as Error or DeviceError (the original is
// nested), all others as they are. After an error the trainer and the model can be used again.
//
// Never prints, exits or installs signal handlers. Of LibTorch's settings, num_threads stays changed;
// deterministic and detect_anomaly are set during calls only. The order of the data comes from separate
// generators. What the model draws comes from LibTorch's, which threads share: runs of two trainers that draw
// at the same time are not repeatable.
class KINDLING_API Trainer {
 public:
  // Throws ConfigError for options out of range, and DeviceError if require_gpus is set and GPUs are missing.
  explicit Trainer(TrainerOptions options = {});
  ~Trainer();
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  // Trains from the model's current weights with a new optimizer until max_epochs or max_steps. Validates
  // after every epoch if the data has a validation loader. Ends earlier if a stop is requested, or after
  // the epoch in which a loss was not finite. With options.resume it continues a saved run instead,
  // bit-identically if model, options and data are those of that run. Throws CheckpointError, without
  // changing saved files, if they do not match.
  FitResult fit(std::shared_ptr<Module> model, DataModule& data, const FitOptions& options = {});
  // Return the means of what validation_step() or test_step() logs over the whole loader. Throw DataError
  // if there is no loader. These, predict() and layer_summary() restore the model except for its device,
  // and do not disturb other loops over the same loader, so that a callback may call them during a fit.
  Metrics validate(std::shared_ptr<Module> model, DataModule& data);
  // Calls `take` for every validation batch, in the order of the data set and under the same limits, with the
  // outputs of Module::forward_inputs() on the device: for statistics of samples that need no wait. Computes
  // no loss and logs nothing. In data-parallel training, each rank that calls it gets all samples.
  void validate(std::shared_ptr<Module> model, DataModule& data,
                const std::function<void(const Prediction&)>& take);
  Metrics test(std::shared_ptr<Module> model, DataModule& data);
  // Returns the outputs of predict_step() in the order of the data set, even if the loader shuffles:
  // [samples, …] on the CPU.
  at::Tensor predict(std::shared_ptr<Module> model, DataModule& data);
  // Calls `take` for every batch, in the order of the data set, with its outputs, indices and labels: for
  // several outputs per sample, or for many samples. An exception from `take` ends the prediction.
  void predict(std::shared_ptr<Module> model, DataModule& data,
               const std::function<void(const Prediction&)>& take);
  // Returns the layers with their shapes for the first training batch; creates the parameters of lazy layers.
  std::vector<LayerRow> layer_summary(std::shared_ptr<Module> model, DataModule& data);

  // The parts of fit(), for custom training loops:
  //
  //   trainer.prepare_data(data);
  //   trainer.prepare_model(model);
  //   while (!trainer.is_done()) {
  //     for (const Batch& batch : trainer.train_batches()) trainer.train_step(batch);
  //     trainer.finish_epoch();                              // fit_epoch() is these two lines
  //   }
  //
  // Prepares the data and requests its loaders. `data` must stay alive as long as the trainer uses it.
  void prepare_data(DataModule& data);
  // Starts a new run: attaches the model to the trainer, moves it to gpus()[0] (without a GPU it stays
  // where it is) and clears its board.
  void prepare_model(std::shared_ptr<Module> model);
  // Runs one epoch of training and validation with its records and callbacks. Returns the values of the
  // epoch's record, empty if a stop has ended it. Throws Error if nothing has been prepared.
  Metrics fit_epoch();
  bool is_done() const;  // true if max_epochs or max_steps is reached, or a stop was requested

  // Returns the whole state of the run between two steps: save_checkpoint(trainer.state_dict(), path). The
  // tensors are those of the run, not copies. Copies the log to the host and makes the loggers' records
  // durable. Throws Error within a step and CheckpointError if the run has diverged. Collective: every rank
  // calls it; the state of rank 0 is complete.
  StateDict state_dict();
  // True if a step so far had a spike after which the fit goes back (SpikeOptions::action "rollback"): a
  // state that is saved now would be one of those that it leaves. Waits for the device. Collective.
  bool will_go_back();
  // Restores a saved state into a run that prepare_model() has just started; loops continue from progress().
  // Throws CheckpointError that lists what does not match.
  void load_state_dict(const StateDict& state);
  const std::string& run_id() const noexcept;  // the same through all resumes of a run

  // The batches of an epoch, prepared for train_step(), in the order of fit() and up to limit_train_batches,
  // max_steps or a requested stop. Each loop over them starts at progress(): after a break, call
  // finish_epoch() to get to the next epoch.
  TrainBatches train_batches() { return TrainBatches(*this); }

  // For batches from any source:
  //
  //   trainer.prepare_model(model);
  //   while (…) trainer.train_step(trainer.prepare_batch(batch));   // no wait
  //   const Metrics values = trainer.finish_epoch();                // moves the log once
  //
  // Moves every tensor to gpus()[0] (without a GPU they stay) and applies on_after_batch_transfer() of the
  // prepared data. Pass the stage of batches that are not trained on. Pinned tensors are copied without a
  // wait.
  Batch prepare_batch(Batch batch, Stage stage = Stage::train) const;
  // Runs one training step: forward, backward, clipping, schedule, update, log. Switches a model in
  // evaluation mode back to training mode.
  void train_step(const Batch& batch);
  // Scales the model's gradients so that their total norm is at most gradient_clip_val, as train_step() does.
  // Returns the norm before clipping, a scalar on the device (undefined without gradients). With the
  // gradient_clip_algorithm "value" limits each number instead, and returns an undefined tensor.
  at::Tensor clip_gradients(double gradient_clip_val, Module& model) const;
  // Logs a value in addition to those of the model, before the train_step() that it belongs to. Values
  // logged after the last step of an epoch form a separate row, weighted like the last batch unless a
  // weight is given.
  void log(std::string_view name, const at::Tensor& value, ValueOptions options = {});
  void log(std::string_view name, double value, ValueOptions options = {});
  // Ends the epoch as fit() does: validation (if the prepared data has a loader for it), record, loggers,
  // callbacks. Returns the record's values. Returns nothing if a stop has ended train_batches() or the
  // validation: the epoch then stays open, and a resumed run continues it. Throws Error if no step was made.
  Metrics finish_epoch();

  // Requests that fit() ends after the current step or validation batch; called before fit(), before the
  // first step. An early stop waits for min_epochs and min_steps. A token requests the same from any
  // thread.
  void request_stop(FitReason reason = FitReason::requested) noexcept;
  StopToken stop_token() const noexcept;

  // The first min(num_gpus, available) GPUs; with a process_group, the one of this rank.
  const std::vector<Device>& gpus() const noexcept;
  Device device() const noexcept;  // gpus()[0], else the CPU
  const TrainerOptions& options() const noexcept;
  TrainerProgress progress() const;
  // The model and data of the run; nullptr before they are prepared, the data also after a fit.
  std::shared_ptr<Module> model() const;
  DataModule* data() const;
  double lr() const noexcept;  // learning rate of the latest step
  // Returns the newest logged values that have arrived on the host and starts a copy of newer ones. Never
  // waits.
  NamedValues preview();
  // Waits for the loss of the latest train_step() on the samples of this rank and returns it, also if it is
  // not finite; NaN if it had none. On a device it copies the epoch's log for that. Throws Error if the epoch
  // has no step yet.
  double loss_value();

 private:
  friend class TrainBatches;
  friend class RunFollower;
  friend class StepWatch;
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace kindling
