#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <vector>

#include "kindling/base/export.h"
#include "kindling/data/dataset.h"
#include "kindling/device/device.h"
#include "kindling/tensors/batch.h"

namespace kindling {

struct DataLoaderOptions {
  std::int64_t batch_size = 64;
  bool shuffle = false;
  bool drop_last = false;  // leave out a last batch that is not full
  std::int64_t seed = 0;   // the order of epoch e (from 0) is randperm(n) of a generator seeded with seed + e
};

// Makes batches of a data set: one indexed copy per tensor and batch into a buffer that is used again when
// nobody else holds it any more. Without shuffling, on the CPU, batches are views into the data (cut once):
// do not write into them.
//
//   for (const Batch& batch : loader) …                    one epoch; each loop is the next epoch
//   loader.start_epoch(e); while (loader.next(batch)) …    the same with the epoch chosen
//
// Used from one thread.
class KINDLING_API DataLoader {
 public:
  // Throws DataError for an empty set or a batch_size below 1.
  DataLoader(std::shared_ptr<const Dataset> dataset, DataLoaderOptions options);
  ~DataLoader();
  DataLoader(const DataLoader&) = delete;
  DataLoader& operator=(const DataLoader&) = delete;

  std::int64_t num_batches() const noexcept;
  const Dataset& dataset() const noexcept { return *dataset_; }
  const DataLoaderOptions& options() const noexcept { return options_; }

  // Where the batches will go. For a card they are gathered in pinned memory, so that their copies need no
  // wait; a buffer is written again only after the card has read it (an event on its current stream tells,
  // asked and never waited for).
  void stage_for(Device device);

  void start_epoch(std::int64_t epoch);
  // The next batch of the epoch; false after the last one (then `batch` is left alone).
  bool next(Batch& batch);

  // One epoch, batch by batch, for range-based loops.
  class Iterator {
   public:
    using value_type = Batch;
    using difference_type = std::ptrdiff_t;
    explicit Iterator(DataLoader& loader) : loader_(&loader) { ++*this; }
    const Batch& operator*() const { return batch_; }
    Iterator& operator++() {
      batch_.clear();  // gives the buffer back before the next one is asked for
      if (!loader_->next(batch_)) loader_ = nullptr;
      return *this;
    }
    void operator++(int) { ++*this; }
    friend bool operator==(const Iterator& it, std::default_sentinel_t) { return it.loader_ == nullptr; }

   private:
    DataLoader* loader_;
    Batch batch_;
  };
  Iterator begin();
  std::default_sentinel_t end() const noexcept { return {}; }

 private:
  struct Buffer;

  bool uses_views() const;
  Buffer& free_buffer();
  void gather(std::int64_t begin, std::int64_t count, Batch& batch);

  std::shared_ptr<const Dataset> dataset_;
  DataLoaderOptions options_;
  Device device_;
  at::Tensor order_;          // int64 [n] of this epoch
  std::vector<Batch> views_;  // of every batch, when they are views
  std::vector<std::unique_ptr<Buffer>> buffers_;
  std::int64_t next_epoch_ = 0;
  std::int64_t batch_index_ = 0;
};

}  // namespace kindling
