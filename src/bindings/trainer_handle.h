#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
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

// The arrays that a model takes.
struct ModelArrays {
  std::optional<std::size_t> num_inputs = 1;  // absent: unknown
  bool includes_targets = false;              // the targets are among them: the model computes the loss
  bool takes_integers = false;  // such as tokens; other models compute with floating-point numbers
};

// What stands behind a kindling_trainer: a trainer with its model, and its data if the config has some.
class TrainerHandle {
 public:
  // `make` makes the same objects again.
  TrainerHandle(std::function<ConfiguredTraining()> make, std::shared_ptr<ProcessGroup> group);
  ~TrainerHandle();

  Trainer& trainer() noexcept { return *trainer_; }
  Module& model() const noexcept { return *made_.model; }
  const std::shared_ptr<Module>& shared_model() const noexcept { return made_.model; }
  // Throws ConfigError without [data].
  DataModule& data(const char* place) const;
  bool has_group() const noexcept { return made_.options.process_group != nullptr; }
  bool writes_files() const noexcept { return !has_group() || made_.options.process_group->rank() == 0; }

  // Starts the training of the program's own loop, once; lazy layers get their parameters from the batch.
  void prepare(const Batch& first);
  bool is_prepared() const noexcept { return is_prepared_; }
  // False while lazy layers have no parameters.
  bool has_all_parameters() const;
  // After an error in the first use of the model: a new one, whose lazy layers fit other arrays.
  void forget_first_use();
  // Starts the training again from a saved state; after an error it is as before.
  void restart(const StateDict& state, const std::string& path);
  void log(const char* name, double value);
  // Keeps the loss of the latest step, whose log an epoch's end clears.
  void keep_loss();
  // Before the first step: a trainer with a ModelCheckpoint.
  void save_into(const std::string& folder, const char* place);
  FitResult fit();

  // Returns a batch where its arrays are. Throws DataError for numbers of samples that differ, and of arrays
  // that are not those of the model.
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
  friend class RandomStream;
  void make_trainer();
  void take_model(std::shared_ptr<Module> model);
  at::ScalarType float_type() const;
  void check_counts(std::size_t num_inputs, std::size_t num_targets, Stage stage, const char* place) const;

  const std::function<ConfiguredTraining()> make_;
  ConfiguredTraining made_;
  ModelArrays arrays_;  // of its model
  std::shared_ptr<ModelCheckpoint> checkpoint_;
  std::optional<Trainer> trainer_;
  std::optional<at::ScalarType> float_type_;
  bool is_prepared_ = false;
  std::string resumed_from_;                                          // the checkpoint, until a step follows
  std::vector<std::pair<std::string, double>> values_of_first_step_;  // logged before there is a log
  std::atomic<std::thread::id> user_{};
  at::Tensor random_numbers_;  // the state of LibTorch's generator while another trainer uses it
  mutable std::mutex stop_mutex_;
  StopToken stop_;
};

// LibTorch's generator belongs to the trainer that was used last: another one continues its own random
// numbers from where it was. Trainers that draw at the same time, in several threads, still share them.
class RandomStream {
 public:
  // `is_new`: the numbers of `owner` begin with what follows.
  explicit RandomStream(TrainerHandle* owner, bool is_new = false);
  // Keeps the numbers of a new trainer until its first use, whoever draws before.
  static void put_away(TrainerHandle& owner);
  static void forget(const TrainerHandle& owner);

 private:
  struct Shared {
    std::mutex mutex;
    TrainerHandle* owner = nullptr;
  };
  static Shared& shared();
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
