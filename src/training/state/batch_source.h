#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "kindling/data/data_module.h"
#include "nn/precision.h"
#include "tensors/copy_stream.h"

namespace kindling {

// Returns a batch ready for a step: on the device, after the data's on_after_batch_transfer (nullptr: there
// is none), in the run's precision and memory layout.
Batch prepared_batch(Batch batch, DataModule* data, Stage stage, const Placement& placement);

// The way of batches from a data module to a step: loader, staging, move to the device, the data module's
// on_after_batch_transfer, and how long the step waited for all that. It has its own place in the data:
// others may be at work on the same loader.
class BatchSource {
 public:
  // `limit`: batches of an epoch at most. All references outlive the source.
  BatchSource(DataModule& data, std::shared_ptr<DataLoader> loader, Stage stage, const Placement& placement,
              std::optional<std::int64_t> limit);

  std::int64_t num_batches() const noexcept;  // of an epoch
  const Placement& placement() const noexcept { return placement_; }
  const DataLoader& loader() const noexcept { return *loader_; }
  // The samples come in their order, however the loader shuffles. Holds from the next seek() on.
  void keep_order() noexcept;
  // The first batches of the data in its order, in every epoch.
  void limit_to(std::int64_t num_batches);

  // Keeps the samples on the card, where the loader's options let them be, for epochs that come to all of
  // them. See DataLoader::Cursor.
  void cache_on_device();
  void shard(std::int64_t rank, std::int64_t size) { cursors_.front().shard(rank, size); }
  // The `count` shards from `first` on of each of the loader's batches: the first of them all, then the
  // second … `size` are there in all processes, and batch_size is of one process. Throws ConfigError for a
  // batch_size that cannot be cut so. Data that draws random numbers is reported in a warning: its batches
  // depend on the number of processes.
  void split_shards(std::int64_t first, std::int64_t count, std::int64_t size);
  void seek(std::int64_t epoch, std::int64_t batch = 0);
  // The next batch, ready for a step; false after the last one.
  bool next(Batch& batch);
  // Which samples the latest batch holds; see DataLoader::Cursor.
  at::Tensor indices() const;

  // Seconds spent in next() since the clock was restarted.
  double wait_seconds() const noexcept { return wait_seconds_; }
  void restart_clock() noexcept { wait_seconds_ = 0; }

 private:
  bool read(Batch& batch);
  bool read_and_watch_draws(Batch& batch);

  DataModule& data_;
  std::shared_ptr<DataLoader> loader_;
  Stage stage_;
  const Placement& placement_;
  std::optional<std::int64_t> limit_;
  std::int64_t of_cursors() const noexcept { return static_cast<std::int64_t>(cursors_.size()); }

  std::vector<DataLoader::Cursor> cursors_;  // which take turns
  std::shared_ptr<CopyStream> copies_;       // nullptr: on the CPU
  bool watches_draws_ = false;
  std::int64_t batch_ = 0;
  double wait_seconds_ = 0;
};

}  // namespace kindling
