#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "kindling/base/export.h"
#include "kindling/data/data_module.h"
#include "kindling/device/device.h"
#include "kindling/nn/module.h"
#include "kindling/tensors/batch.h"
#include "kindling/training/callback.h"
#include "kindling/training/fit_result.h"
#include "kindling/training/stop_token.h"
#include "kindling/training/trainer_options.h"

namespace kindling {

// Where a fit is.
struct TrainerProgress {
  std::int64_t epoch = 0;              // from 0
  std::int64_t batch_index = 0;        // batches of this epoch done
  std::int64_t num_train_batches = 0;  // of this epoch; 0: unknown (an own loop)
  std::int64_t global_step = 0;        // optimizer steps done
  double epoch_seconds = 0;            // since this epoch began
  double data_wait_seconds = 0;        // of them, spent getting batches
};

// Trains, evaluates and runs a model: moves it and its batches to the first card, keeps the loss log on the
// device and brings it to the host once per epoch. Used from one thread; several Trainers may live at once on
// threads of their own.
//
// Between prepare_batch and the end of an epoch nothing reads a tensor on the host. Errors: ConfigError for
// options, DataError, DeviceError; errors of LibTorch come as Error or DeviceError (nested: the original),
// all others as they were thrown. After an error the trainer and the model can be used again.
//
// The process stays the caller's: no output, no exit, no signal handler, and no setting of LibTorch changes,
// num_threads excepted. The order of the data has generators of its own. LibTorch's default generators, which
// all threads share, give only what the model draws: first weights, dropout. Two trainers at once that both
// draw from them are right, but not repeatable.
class KINDLING_API Trainer {
 public:
  // Throws ConfigError for options out of range and DeviceError for require_gpus without the cards.
  explicit Trainer(TrainerOptions options = {});
  ~Trainer();
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  // Trains from the weights that the model has, with a new optimizer, until max_epochs or max_steps;
  // validates after every epoch when the data has a validation loader.
  FitResult fit(std::shared_ptr<Module> model, DataModule& data);
  // The means of what validation_step or test_step logs over the whole loader. Throw DataError when there is
  // no loader. These and predict() leave the model as they found it, its device excepted, so that they may be
  // called from a callback in the middle of a fit, of this trainer or of another.
  Metrics validate(std::shared_ptr<Module> model, DataModule& data);
  Metrics test(std::shared_ptr<Module> model, DataModule& data);
  // The outputs of predict_step for every sample in order, [samples, …] on the CPU, moved there once.
  at::Tensor predict(std::shared_ptr<Module> model, DataModule& data);

  // One level lower; fit() is made of these:
  //
  //   trainer.prepare_data(data); trainer.prepare_model(model);
  //   while (…) trainer.fit_epoch();
  //
  // Gets the data ready and asks for its loaders. `data` is borrowed until the last fit_epoch().
  void prepare_data(DataModule& data);
  // Gives the model its trainer, begins its board with xlim {0, max_epochs}, starts a new optimizer and moves
  // the model to gpus()[0] (without a card it stays where it is).
  void prepare_model(std::shared_ptr<Module> model);
  // One epoch of training and validation, with its records and callbacks; the values of the epoch record.
  // Throws Error when nothing has been prepared. A stop request is the caller's to heed.
  Metrics fit_epoch();

  // And lower still, for batches from anywhere:
  //
  //   trainer.prepare_model(model);
  //   while (…) { trainer.train_step(trainer.prepare_batch(batch)); }   // no wait
  //   const Metrics means = trainer.finish_epoch();                     // moves the log once
  //
  // Moves every tensor to gpus()[0] (without a card they stay). Pinned tensors are copied without a wait.
  Batch prepare_batch(Batch batch) const;
  // Forward, backward, clipping, learning rate, update, log: one optimizer step.
  void train_step(const Batch& batch);
  // Scales the gradients of the model so that their common norm is at most gradient_clip_val, as train_step()
  // does: for a step of one's own. Returns the norm before, on the device (undefined without gradients).
  at::Tensor clip_gradients(double gradient_clip_val, Module& model) const;
  // Logs a number beside what the model logs, before the train_step it belongs to.
  void log(std::string_view name, const at::Tensor& value);
  // The weighted means of all that was logged since the last call; begins the next epoch.
  Metrics finish_epoch();

  // Ends fit() after the current step. The token does the same from other threads.
  void request_stop() noexcept;
  StopToken stop_token() const noexcept;

  // The first min(num_gpus, those that exist) cards.
  const std::vector<Device>& gpus() const noexcept;
  Device device() const noexcept;  // gpus()[0], else the CPU
  const TrainerOptions& options() const noexcept;
  TrainerProgress progress() const;
  // The learning rate of the latest step.
  double lr() const noexcept;
  // The latest logged values of a step that have reached the host; never waits. On a card it also starts an
  // asynchronous copy of newer ones, at most once a second.
  std::vector<std::pair<std::string, double>> preview();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace kindling
