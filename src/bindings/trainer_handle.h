#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "bindings/arrays.h"
#include "bindings/handles.h"
#include "kindling/cli/configured_training.h"
#include "kindling/training/stop_token.h"
#include "kindling/training/trainer.h"

namespace kindling::bindings {

class EventCallback;

// What stands behind a kindling_trainer: a trainer with its model, and its data if the config has some.
class TrainerHandle {
 public:
  TrainerHandle(ConfiguredTraining made, std::shared_ptr<ProcessGroup> group);
  ~TrainerHandle();

  Trainer& trainer() noexcept { return *trainer_; }
  Module& model() const noexcept { return *made_.model; }
  const std::shared_ptr<Module>& shared_model() const noexcept { return made_.model; }
  // Throws ConfigError without [data].
  DataModule& data(const char* place) const;
  bool has_group() const noexcept { return made_.options.process_group != nullptr; }
  bool writes_files() const noexcept { return !has_group() || made_.options.process_group->rank() == 0; }

  // Starts the training of the program's own loop, once. Ranks of a group must then have all parameters:
  // those of lazy layers come from the batch.
  void prepare(const Batch* first = nullptr);
  // Starts it anew from a saved state.
  void restart(const StateDict& state);
  // Before the first use of the model: random numbers go on from where this trainer was made.
  void restore_random_numbers();
  void log(const char* name, double value);
  // Keeps the loss of the latest step, whose log an epoch's end clears.
  void keep_loss();
  // Before the first step: a trainer with a ModelCheckpoint.
  void save_into(const std::string& folder, const char* place);
  FitResult fit();

  // Returns a batch where its arrays are. Throws DataError for numbers of samples that differ.
  Batch batch_of(const kindling_array* inputs, std::size_t num_inputs, const kindling_array* targets,
                 std::size_t num_targets, const kindling_array* mask, Stage stage, const char* place);
  // Returns it on the trainer's device, as [data] transforms batches.
  Batch prepared(Batch batch, Stage stage);

  Metrics metrics{};             // of the latest epoch, fit or evaluation
  std::optional<double> loss{};  // of the latest step of an epoch that has been ended
  std::shared_ptr<EventCallback> events;
  StopToken stop_token() const;

 private:
  friend class TrainerUse;
  void make_trainer();
  at::ScalarType float_type() const;

  ConfiguredTraining made_;
  std::shared_ptr<ModelCheckpoint> checkpoint_;
  std::optional<Trainer> trainer_;
  std::optional<at::ScalarType> float_type_;
  bool is_prepared_ = false;
  std::vector<std::pair<std::string, double>> values_of_first_step_;  // logged before there is a log
  at::Tensor random_numbers_;  // the state of LibTorch's generator until the first use
  std::atomic<std::thread::id> user_{};
  mutable std::mutex stop_mutex_;
  StopToken stop_;
};

// For its lifetime, this thread uses the trainer of a handle. Throws StatusError for a handle that is not in
// use, or that another thread uses. A callback of a call may use it again.
class TrainerUse {
 public:
  TrainerUse(kindling_trainer handle, const char* place);
  ~TrainerUse();
  TrainerUse(const TrainerUse&) = delete;
  TrainerUse& operator=(const TrainerUse&) = delete;

  TrainerHandle* operator->() const noexcept { return object_.get(); }
  bool is_nested() const noexcept { return is_nested_; }

 private:
  std::shared_ptr<TrainerHandle> object_;
  bool is_nested_ = false;
};

HandleTable<kindling_trainer, TrainerHandle>& trainers();
HandleTable<kindling_group, std::shared_ptr<ProcessGroup>>& groups();
HandleTable<kindling_tensor, at::Tensor>& tensors();

}  // namespace kindling::bindings
