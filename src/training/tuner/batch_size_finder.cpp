#include "kindling/training/batch_size_finder.h"

#include <ATen/DeviceAccelerator.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <utility>

#include "device/libtorch_errors.h"
#include "kindling/base/error.h"
#include "kindling/base/log.h"
#include "kindling/training/trainer.h"
#include "training/tuner/memory_reservation.h"
#include "training/tuner/trial_fit.h"

namespace kindling {
namespace {

// The data sets of another data module with a different batch size.
class ResizedData : public DataModule {
 public:
  ResizedData(DataModule& data, std::int64_t batch_size) : data_(data), batch_size_(batch_size) {}

  void prepare_data() override { data_.prepare(); }
  std::shared_ptr<DataLoader> train_dataloader() override { return resized(data_.train_dataloader()); }
  std::shared_ptr<DataLoader> val_dataloader() override { return resized(data_.val_dataloader()); }
  Batch on_after_batch_transfer(Batch batch, Stage stage) override {
    return data_.on_after_batch_transfer(std::move(batch), stage);
  }
  std::shared_ptr<InputTransform> input_transform() override { return data_.input_transform(); }

 private:
  std::shared_ptr<DataLoader> resized(const std::shared_ptr<DataLoader>& loader) const {
    if (!loader) return nullptr;
    DataLoaderOptions options = loader->options();
    options.batch_size = batch_size_;
    return std::make_shared<DataLoader>(std::shared_ptr<const Dataset>(loader, &loader->dataset()), options);
  }

  DataModule& data_;
  std::int64_t batch_size_;
};

// Returns the number of samples that a batch may have: without shards, each rank has a part of the data.
std::int64_t num_train_samples(const TrainerOptions& trainer, DataModule& data) {
  data.prepare();
  const auto loader = data.train_dataloader();
  if (!loader) throw DataError({.place = "find_batch_size", .found = "the data has no train_dataloader()"});
  const ProcessGroup* const group = trainer.gradient_shards > 1 ? nullptr : group_of(trainer);
  return std::max<std::int64_t>(loader->num_samples() / (group != nullptr ? group->size() : 1), 1);
}

// Returns the options of a trial. Each rank tries by itself, because running out of memory ends a group.
TrainerOptions options_of_trial(const TrainerOptions& trainer, const BatchSizeFinderOptions& options,
                                const StopToken& stop) {
  TrainerOptions trial = trainer;
  trial.process_group = nullptr;
  trial.num_processes = 1;
  trial = trial_options(std::move(trial), options.steps_per_trial);
  trial.limit_val_batches =
      std::min(trainer.limit_val_batches.value_or(options.steps_per_trial), options.steps_per_trial);
  trial.callbacks = {std::make_shared<StopElsewhere>(stop)};
  return trial;
}

// The search interval: sizes up to `low` fit; sizes from `high` on do not, or exceed the number of samples.
class Search {
 public:
  Search(const BatchSizeFinderOptions& options, std::int64_t num_samples)
      : is_binary_(options.mode == "binsearch"),
        num_samples_(num_samples),
        high_(num_samples + 1),
        next_(std::min(options.init_val, num_samples)) {}

  std::int64_t next() const noexcept { return next_; }  // the next size to try; 0: finished
  std::int64_t largest() const noexcept { return low_; }
  void learn(bool fits) {
    (fits ? low_ : high_) = next_;
    if (high_ - low_ <= 1)
      next_ = 0;
    else if (high_ > num_samples_)
      next_ = std::min(2 * low_, num_samples_);
    else if (low_ == 0)
      next_ = high_ / 2;
    else
      next_ = is_binary_ ? low_ + (high_ - low_) / 2 : 0;
  }

 private:
  bool is_binary_;
  std::int64_t num_samples_, low_ = 0, high_, next_;
};

// Returns whether a trial run fits in memory; its own memory is free afterwards.
bool fits(const TrainerOptions& trial, const std::shared_ptr<Module>& model, DataModule& data,
          std::int64_t batch_size) {
  const Device device = trial_device(trial);
  std::string trouble;
  try {
    ResizedData resized(data, batch_size);
    Trainer(trial).fit(model, resized);
  } catch (const std::exception& error) {
    if (!comes_from_memory(error)) throw;
    trouble = std::string(" does not fit: out of memory: ") + error.what();
  }
  for (at::Tensor parameter : model->parameters()) parameter.mutable_grad() = at::Tensor();
  if (!device.is_cpu()) at::accelerator::emptyCache();  // cached blocks have the sizes of this trial
  log_info("batch size " + std::to_string(batch_size) + (trouble.empty() ? " fits" : trouble));
  return trouble.empty();
}

// Returns whether a trial fits in the memory of every rank. The other ranks do not wait for one that throws.
bool fits_on_all(ProcessGroup* group, const std::function<bool()>& fits) {
  bool has_memory = false;
  try {
    has_memory = fits();
  } catch (const std::exception& error) {
    if (group != nullptr) group->leave(error.what());
    throw;
  }
  return largest_of_ranks(group, has_memory ? 0 : 1) == 0;
}

[[noreturn]] void refuse(const BatchSizeFinderResult& result) {
  const std::string smallest = std::to_string(result.trials.back().batch_size);
  throw Error({.place = "find_batch_size",
               .found = "out of memory with every batch size that was tried, down to " + smallest,
               .remedy = result.trials.back().batch_size > 1 ? "start with a smaller init_val"
                                                             : "use a smaller model or smaller samples"});
}

}  // namespace

BatchSizeFinderResult find_batch_size(const TrainerOptions& trainer, const std::shared_ptr<Module>& model,
                                      DataModule& data, const BatchSizeFinderOptions& options,
                                      const StopToken& stop) {
  return with_libtorch_errors("find_batch_size", [&] {
    validate(options, "BatchSizeFinderOptions");
    const TrainerOptions trial = options_of_trial(trainer, options, stop);
    ProcessGroup* const group = group_of(trainer);
    // Trials run on the first GPU, so one rank of each machine makes them there.
    const bool tries = group == nullptr || trial_device(trial).is_cpu() || group->local_rank() == 0;
    const TrialScope scope(*model, trial_device(trial));
    std::optional<MemoryReservation> margin;
    if (tries) margin.emplace(trial_device(trial), options.margin);
    BatchSizeFinderResult result;
    Search search(options, num_train_samples(trainer, data));
    for (std::int64_t i = 0; i < options.max_trials && search.next() > 0; ++i) {
      const std::int64_t size = search.next();
      const bool has_memory = fits_on_all(group, [&] { return !tries || fits(trial, model, data, size); });
      if (share_stop(group, stop)) break;  // in the middle of the trial
      result.trials.push_back({size, has_memory});
      search.learn(has_memory);
    }
    result.batch_size = search.largest();
    if (result.batch_size == 0 && !stop.stop_requested()) refuse(result);
    return result;
  });
}

}  // namespace kindling
