#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kindling/base/export.h"
#include "kindling/config/count_or_fraction.h"
#include "kindling/data/data_module.h"
#include "kindling/loggers/progress.h"
#include "kindling/training/trainer_options.h"
#include "nn/precision.h"
#include "tensors/copy_stream.h"

namespace kindling {

// Returns a batch ready for a step: on the device, after the data's on_after_batch_transfer (nullptr: there
// is none), in the run's precision and memory layout.
Batch prepared_batch(Batch batch, DataModule* data, Stage stage, const Placement& placement);

// Returns `limit`; for endless data without one `enough`. Throws ConfigError for those with neither.
std::optional<std::int64_t> limit_of_epoch(const DataLoader& loader, Stage stage,
                                           std::optional<std::int64_t> limit,
                                           std::optional<std::int64_t> enough = std::nullopt);
// Returns the number of batches that max_steps takes, if it is set.
std::optional<std::int64_t> batches_of_run(const TrainerOptions& options);

// Throws ConfigError or DataError if the training batches cannot be divided among so many ranks, or an epoch
// has fewer than an interval of the options.
KINDLING_API void require_partition(const TrainerOptions& options, DataModule& data,
                                    std::shared_ptr<DataLoader> train, std::int64_t num_ranks);

// Moves batches from a data module to a step: loader, staging, transfer to the device, the data module's
// on_after_batch_transfer. Measures how long the step waited for it. Has its own position in the data, so
// several sources may use the same loader.
class BatchSource {
 public:
  // `limit`: batches of an epoch at most; required for endless data, else ConfigError. All references outlive
  // the source.
  BatchSource(DataModule& data, std::shared_ptr<DataLoader> loader, Stage stage, const Placement& placement,
              std::optional<std::int64_t> limit);

  std::int64_t num_batches() const noexcept;  // per epoch; each shard counts
  // Returns how many shards of a batch this source yields one after the other, see split_shards().
  std::int64_t num_shards_per_batch() const noexcept { return static_cast<std::int64_t>(cursors_.size()); }
  const Placement& placement() const noexcept { return placement_; }
  DataModule& data() const noexcept { return data_; }
  const DataLoader& loader() const noexcept { return *loader_; }
  bool is_endless() const noexcept { return loader_->is_endless(); }
  // Returns how many samples all ranks together take for so many of this source's batches, whole steps.
  std::int64_t num_samples_in(std::int64_t batches) const noexcept;
  // Endless data begin with this sample, from the next seek() on, unless limit_to() was called.
  void begin_at(std::int64_t sample) noexcept;
  // Turns shuffling off, from the next seek() on.
  void keep_order() noexcept;
  // Uses the first batches of the data in data-set order, in every epoch.
  void limit_to(const CountOrFraction& batches);

  // Keeps the samples in GPU memory if the loader's options allow it and epochs use all of them. See
  // DataLoader::Cursor.
  void cache_on_device();
  void shard(std::int64_t rank, std::int64_t size) { cursors_.front().shard(rank, size); }
  // Splits each of the loader's batches into shards and yields the `count` shards from `first` on, one after
  // the other. `size` is the number of shards over all ranks; batch_size is per rank. Throws ConfigError for
  // a batch_size that is not divisible. Warns about data that draws random numbers: its batches depend on the
  // number of ranks.
  void split_shards(std::int64_t first, std::int64_t count, std::int64_t size);
  // Keeps the rank's part of the training batches, as the options say. Throws DataError if it has no batch,
  // ConfigError for a validation interval that an epoch does not have.
  void partition(const TrainerOptions& options, std::int64_t rank, std::int64_t num_ranks);
  // Throws DataError if a sampler returns another order within an epoch than at an earlier seek() to it, and
  // CheckpointError for another one than expect_order() has.
  void seek(std::int64_t epoch, std::int64_t batch = 0);
  // Within an epoch, returns DataLoader::Cursor::order_fingerprint() of it; empty if seek() has drawn no
  // order.
  std::string order_fingerprint(const Progress& at) const {
    return at.batch > 0 && at.epoch == order_.epoch ? order_.fingerprint : std::string();
  }
  // Says what order_fingerprint() was when a run was saved within the epoch. Another number of samples is not
  // compared, because it shows in the number of batches.
  void expect_order(std::int64_t epoch, std::string fingerprint) {
    order_ = {.epoch = epoch, .fingerprint = std::move(fingerprint), .is_saved = true};
  }
  // The next batch, ready for a step; false after the last one.
  bool next(Batch& batch);
  // Call it after the step of a batch; next() does, too. Batches may be views of the data set's tensors,
  // which hooks and steps must not change. The first of them is a copy; if it has been written to, all others
  // are copies. Throws DataError if a later one has been written to.
  void end_batch();
  // Returns the indices of the samples in the latest batch; see DataLoader::Cursor.
  at::Tensor indices() const;

  // Returns how many samples the data module has skipped, see DataModule::skipped_samples().
  std::int64_t num_skipped_samples() const { return std::ssize(data_.skipped_samples()); }

  // Seconds spent in next() since the clock was restarted.
  double wait_seconds() const noexcept { return wait_seconds_; }
  void restart_clock() noexcept { wait_seconds_ = 0; }

 private:
  bool read(Batch& batch);
  void protect_view(Batch& batch, std::size_t cursor);
  bool read_and_watch_draws(Batch& batch);

  DataModule& data_;
  std::shared_ptr<DataLoader> loader_;
  Stage stage_;
  const Placement& placement_;
  std::optional<std::int64_t> limit_;

  std::vector<DataLoader::Cursor> cursors_;  // which take turns
  Batch first_view_{}, copy_of_first_{};     // until end_batch()
  bool has_tried_copy_ = false, copies_views_ = false;
  std::optional<std::size_t> watched_{};  // the cursor of a view that is not a copy, until end_batch()
  std::shared_ptr<CopyStream> copies_;    // nullptr: on the CPU
  bool watches_draws_ = false, repeats_first_ = false;
  std::int64_t batch_ = 0;
  struct Order {
    std::int64_t epoch = -1;
    std::string fingerprint{};
    bool is_saved = false;  // of the run that is resumed
  };
  static void require_order(const Order& known, const std::string& now);
  Order order_{};  // of the latest seek()
  double wait_seconds_ = 0;
};

// The batches of a validation set. `suffix`: see ValidationSet.
struct ValidationSource {
  std::string suffix;
  BatchSource batches;
};

}  // namespace kindling
