#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kindling/base/export.h"
#include "kindling/config/options.h"
#include "kindling/data/data_loader.h"
#include "kindling/data/rollouts.h"
#include "kindling/data/stage.h"
#include "kindling/tensors/batch.h"

namespace kindling {

class InputTransform;

// The options of every data module. A range holds the first index and the one after the last.
struct DataOptions {
  std::int64_t batch_size = 64;
  bool shuffle = true;  // reshuffle the training samples in every epoch
  bool drop_last = false;
  std::optional<std::array<std::int64_t, 2>> train{};  // range of the training samples; absent: all
  std::optional<std::array<std::int64_t, 2>>
      val{};              // range of the validation samples; absent: the default split of the data set
  std::int64_t seed = 0;  // of the shuffling; the program sets it to the run's seed
  std::string order_seed = "sum";             // see DataLoaderOptions
  std::string resident = "auto";              // see DataLoaderOptions
  std::optional<std::int64_t> num_workers{};  // see DataLoaderOptions
  // Which training samples an epoch has: "shuffled", "sequential" or "balanced"; absent: what `shuffle` says.
  // Balanced epochs draw with replacement, so that all classes come equally often; the labels are the last
  // tensor. Applies to the loaders of train_loader_of() and get_tensorloader().
  std::optional<std::string> sampler{};

  static constexpr auto fields = kindling::fields(
      kindling::field("batch_size", &DataOptions::batch_size, {.doc = "samples per batch", .min = 1}),
      kindling::field("shuffle", &DataOptions::shuffle,
                      {.doc = "shuffle the training samples in every epoch"}),
      kindling::field(
          "order_seed", &DataOptions::order_seed,
          {.doc = "what seeds the order of an epoch; sum: seed + epoch, as in PyTorch; mixed: other "
                  "orders for each seed",
           .choices = "sum|mixed"}),
      kindling::field("drop_last", &DataOptions::drop_last,
                      {.doc = "drop the last training batch if it is not full"}),
      kindling::field(
          "train", &DataOptions::train,
          {.doc = "[first, end) of the training samples; absent: all", .min = 0, .example = "[0, 50000]"}),
      kindling::field(
          "val", &DataOptions::val,
          {.doc = "[first, end) of the validation samples; absent: the default split of the data set",
           .min = 0,
           .example = "[50000, 60000]"}),
      kindling::field("resident", &DataOptions::resident,
                      {.doc = "keep all samples in GPU memory; auto: if they take at most a quarter of it",
                       .choices = "auto|on|off",
                       .policy = {.on_resume = OptionPolicy::OnResume::may_change}}),
      kindling::field(
          "num_workers", &DataOptions::num_workers,
          {.doc = "threads that create batches ahead; absent: measured for data that allow it, else 0",
           .min = 0,
           .max = 1024,
           .policy = {.on_resume = OptionPolicy::OnResume::may_change},
           .example = "2"}),
      kindling::field(
          "sampler", &DataOptions::sampler,
          {.doc = "order of the training samples; balanced: all classes equally often, drawn with "
                  "replacement; absent: data.shuffle decides",
           .choices = "shuffled|sequential|balanced",
           .example = "\"balanced\""}));
};

// The names of samples, from a column such as `id`.
struct SampleIds {
  std::string name{};                 // of the column; empty: samples have no names
  std::vector<std::string> values{};  // one per sample, in the order of the data
};

// One of several validation sets.
struct NamedLoader {
  std::string name;
  std::shared_ptr<DataLoader> loader;
};

// Data and the loaders that make batches of it.
class KINDLING_API DataModule {
 public:
  explicit DataModule(DataOptions options = {});
  virtual ~DataModule();

  // Opens and checks files before the loaders are requested. Trainers call prepare(), which calls it once per
  // object (again only if it has thrown). Throws DataError.
  virtual void prepare_data() {}
  void prepare();

  virtual std::shared_ptr<DataLoader> train_dataloader() = 0;
  virtual std::shared_ptr<DataLoader> val_dataloader() { return nullptr; }  // nullptr: no validation
  // Returns further validation sets. Their names are distinct and without /, [ and ]. Records have their
  // values as "val_loss/NAME"; those of val_dataloader(), which must exist, have no suffix.
  virtual std::vector<NamedLoader> more_val_dataloaders() { return {}; }
  virtual std::shared_ptr<DataLoader> test_dataloader() { return val_dataloader(); }
  virtual std::shared_ptr<DataLoader> predict_dataloader() { return test_dataloader(); }

  // Transforms every batch after it has been moved to the device, such as uint8 → float. Must not read a
  // tensor on the host. Trainers call the first function; override it if the transform depends on the stage,
  // such as augmentation in training. By default it calls the second, for transforms of every batch.
  virtual Batch on_after_batch_transfer(Batch batch, [[maybe_unused]] Stage stage) {
    return on_after_batch_transfer(std::move(batch));
  }
  virtual Batch on_after_batch_transfer(Batch batch) { return batch; }

  // Undoes the scaling of targets that on_after_batch_transfer() has made, of predictions or labels on the
  // device, without a wait. Trainer::predict() returns predictions in the unit of the data. The default
  // returns its argument: targets are not scaled.
  virtual at::Tensor unscale_targets(const at::Tensor& values) { return values; }
  // Returns what RolloutValidation needs; by default nothing. Requires prepare().
  virtual Rollouts rollouts() { return {}; }

  // The number of random numbers per sample that on_after_batch_transfer() needs in a stage, such as for
  // augmentation. Loaders of get_tensorloader() and loader_options() put them into each batch as
  // Batch::random_numbers(): like sample_random(), they depend on seed, epoch and sample only, not on the
  // number of workers or ranks. Asked for Stage::train, and for Stage::val on behalf of all other loaders.
  virtual std::int64_t num_random_numbers([[maybe_unused]] Stage stage) const { return 0; }

  // Returns the transform that on_after_batch_transfer() applies and that is saved with the model
  // (input_transform.h); nullptr: none. Requires prepare().
  virtual std::shared_ptr<InputTransform> input_transform() { return nullptr; }
  // Returns the dtype of the first input of a program that begins with on_after_batch_transfer(): float64 if
  // float32 would round the inputs too coarsely; absent: as in the loaders' batches. Requires prepare().
  virtual std::optional<at::ScalarType> program_input_type();
  // Takes the transform of a saved model by its description, instead of fitting one on the training samples;
  // its buffers are loaded with the model. Call it before prepare().
  virtual void restore_input_transform([[maybe_unused]] const std::string& description) {}
  // Lets predict_dataloader() read this file instead. Call it before prepare(). The default throws
  // ConfigError.
  virtual void predict_from(const std::filesystem::path& file);
  // Returns the name of each class; empty: classes have no names.
  virtual std::vector<std::string> class_names() { return {}; }
  // Returns what is wrong with each sample that has been skipped so far, such as a broken file by its path.
  virtual std::vector<std::string> skipped_samples() { return {}; }
  // Returns the names of the samples of train_dataloader(), in the order of its data set.
  virtual SampleIds train_ids() { return {}; }
  // Returns the names of the samples of val_dataloader(), in the order of its data set.
  virtual SampleIds val_ids() { return {}; }
  // Returns the names of the samples of predict_dataloader().
  virtual SampleIds predict_ids() { return {}; }

  // Returns a loader of tensors ([n, …] each, CPU): shuffled for training, in order otherwise. The data
  // module keeps the latest loader of each kind, and a new one continues its epochs: a loop over
  // `*train_dataloader()` is safe and has another order in every epoch.
  std::shared_ptr<DataLoader> get_tensorloader(std::vector<at::Tensor> tensors, bool train) const;

  const DataOptions& options() const noexcept { return options_; }
  // Returns the options as those of a loader, for modules that create loaders of their own data sets;
  // for balanced sampling they must set `sampler` themselves.
  DataLoaderOptions loader_options(bool train) const;

 protected:
  // Return the loaders of two in-memory sets, with the ranges of the options; `val` may be empty (no
  // validation). The same loader as before if the tensors have the same values, else one that continues its
  // epochs.
  std::shared_ptr<DataLoader> train_loader_of(const std::vector<at::Tensor>& train);
  std::shared_ptr<DataLoader> val_loader_of(const std::vector<at::Tensor>& val);

 private:
  DataOptions options_;
  bool is_prepared_ = false;
  std::shared_ptr<DataLoader> train_loader_, val_loader_;
  mutable std::shared_ptr<DataLoader> latest_[2];  // of get_tensorloader: in order, for training
};

}  // namespace kindling
