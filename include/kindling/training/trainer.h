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

// Trains, evaluates and runs a model: moves it and its batches to the first card, keeps the loss log on the
// device and brings it to the host once per epoch. Used from one thread; several Trainers may live at once on
// threads of their own.
//
// Between prepare_batch and the end of an epoch nothing reads a tensor on the host. Errors: ConfigError for
// options, DataError, DeviceError; errors of LibTorch come as Error or DeviceError (nested: the original),
// all others as they were thrown. After an error the trainer and the model can be used again.
//
// The process stays the caller's: no output, exit or signal handler; of LibTorch's settings num_threads stays
// changed, deterministic and detect_anomaly hold during calls. The order of the data has generators of its
// own; LibTorch's, which threads share, give what the model draws: two trainers that draw are not repeatable.
class KINDLING_API Trainer {
 public:
  // Throws ConfigError for options out of range and DeviceError for require_gpus without the cards.
  explicit Trainer(TrainerOptions options = {});
  ~Trainer();
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  // Trains from the weights that the model has, with a new optimizer, until max_epochs or max_steps;
  // validates after every epoch when the data has a validation loader. Ends earlier when a stop is requested,
  // or when the loss of a training step was not finite: the epoch that shows it is the last. With
  // options.resume it goes on from a checkpoint instead, bit for bit, with the model, the options and the
  // data of the training that was saved. What cannot fit is a CheckpointError, and all that is saved stays.
  FitResult fit(std::shared_ptr<Module> model, DataModule& data, const FitOptions& options = {});
  // The means of what validation_step or test_step logs over the whole loader. Throw DataError when there is
  // no loader. These, predict() and layer_summary() leave the model as they found it, its device excepted,
  // and other loops over the same loader where they are, so that they may be called from a callback in the
  // middle of a fit, of this trainer or of another.
  Metrics validate(std::shared_ptr<Module> model, DataModule& data);
  Metrics test(std::shared_ptr<Module> model, DataModule& data);
  // The outputs of predict_step in the samples' order, also of a shuffling loader: [samples, …] on the CPU.
  at::Tensor predict(std::shared_ptr<Module> model, DataModule& data);
  // Batch by batch, with everything that belongs to it: for outputs that do not fit in memory together, for
  // several outputs, for labels beside them. What `take` throws ends it.
  void predict(std::shared_ptr<Module> model, DataModule& data,
               const std::function<void(const Prediction&)>& take);
  // The layers and their shapes for the first training batch; lazy layers get their parameters.
  std::vector<LayerRow> layer_summary(std::shared_ptr<Module> model, DataModule& data);

  // One level lower; fit() is made of these:
  //
  //   trainer.prepare_data(data);
  //   trainer.prepare_model(model);
  //   while (!trainer.is_done()) {
  //     for (const Batch& batch : trainer.train_batches()) trainer.train_step(batch);
  //     trainer.finish_epoch();                              // or fit_epoch() for the two lines
  //   }
  //
  // Gets the data ready and asks for its loaders. `data` is borrowed until the last use of it here.
  void prepare_data(DataModule& data);
  // Gives the model its trainer, begins its board with xlim {0, max_epochs}, starts a new training and moves
  // the model to gpus()[0] (without a card it stays where it is).
  void prepare_model(std::shared_ptr<Module> model);
  // One epoch of training and validation, with its records and callbacks; the values of the epoch record,
  // none when a stop has ended it. Throws Error when nothing has been prepared.
  Metrics fit_epoch();
  bool is_done() const;  // max_epochs or max_steps is reached, or a stop has been requested

  // The training between two steps: save_checkpoint(trainer.state_dict(), path). The tensors are its own, no
  // copies. Brings the log to the host; what loggers were told is on disk then. Throws Error inside a step,
  // CheckpointError when the training has diverged. All processes call it; that of process 0 is whole.
  StateDict state_dict();
  // Puts a training that prepare_model() has just begun to where a saved one stood; loops go on from
  // progress(). Throws CheckpointError that says what does not fit.
  void load_state_dict(const StateDict& state);
  const std::string& run_id() const noexcept;  // of the training, through all its stops

  // The batches of an epoch, ready for train_step(): in the order that fit() takes them in, up to
  // limit_train_batches and max_steps; a requested stop ends them, too. Each loop over them begins
  // where progress() stands: after a break, finish_epoch() leads to the next epoch.
  TrainBatches train_batches() { return TrainBatches(*this); }

  // And lower still, for batches from anywhere:
  //
  //   trainer.prepare_model(model);
  //   while (…) trainer.train_step(trainer.prepare_batch(batch));   // no wait
  //   const Metrics values = trainer.finish_epoch();                // moves the log once
  //
  // Moves every tensor to gpus()[0] (without a GPU they stay) and applies on_after_batch_transfer of prepared
  // data; name the stage of batches that are not trained on. Pinned tensors are copied without a wait.
  Batch prepare_batch(Batch batch, Stage stage = Stage::train) const;
  // Forward, backward, clipping, learning rate, update, log: one optimizer step. Puts a model that is in
  // evaluation mode as a whole back into training mode.
  void train_step(const Batch& batch);
  // Scales the gradients of the model so that their common norm is at most gradient_clip_val, as train_step()
  // does: for a step of one's own. Returns the norm before, on the device (undefined without gradients).
  at::Tensor clip_gradients(double gradient_clip_val, Module& model) const;
  // Logs a number beside what the model logs, before the train_step it belongs to; what comes after the last
  // step of an epoch counts as a row of its own, with the weight of the last batch unless one is given.
  void log(std::string_view name, const at::Tensor& value, ValueOptions options = {});
  void log(std::string_view name, double value, ValueOptions options = {});
  // Ends the epoch as fit() does: validation (when the prepared data has a loader for it), record, loggers,
  // callbacks. Returns the record's values; none when a stop has ended train_batches() or the validation:
  // then the epoch stays open, so that a saved training can go on there.
  Metrics finish_epoch();

  // Ends fit() after the current step or validation batch; before fit(), ends it before the first step. An
  // early stop waits for min_epochs and min_steps. The token does the same from other threads, at once.
  void request_stop(FitReason reason = FitReason::requested) noexcept;
  StopToken stop_token() const noexcept;

  // The first min(num_gpus, those that exist) cards; with a process_group this process's one of them.
  const std::vector<Device>& gpus() const noexcept;
  Device device() const noexcept;  // gpus()[0], else the CPU
  const TrainerOptions& options() const noexcept;
  TrainerProgress progress() const;
  // What is being trained, and on what; nullptr before it is prepared, the data after a fit, too.
  std::shared_ptr<Module> model() const;
  DataModule* data() const;
  double lr() const noexcept;  // of the latest step
  // The latest logged values of a step that are on the host; starts a copy of newer ones, and never waits.
  NamedValues preview();

 private:
  friend class TrainBatches;
  friend class StepWatch;
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace kindling
