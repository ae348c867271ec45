#pragma once

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kindling/base/export.h"
#include "kindling/data/data_loader_options.h"
#include "kindling/data/dataset.h"
#include "kindling/device/device.h"
#include "kindling/tensors/batch.h"

namespace kindling {

class BatchGatherer;
class ResidentTensors;
struct GatherRequest;

// Makes batches of a data set: one indexed copy per tensor and batch, into a buffer that is reused once no
// one else holds it. Without shuffling, on the CPU, batches of in-memory tensors are views of the data,
// created once: do not write to them. A loop finds such a write at its next batch, and throws DataError.
//
//   for (const Batch& batch : loader) …                    one epoch; each loop is the next epoch
//   loader.start_epoch(e); while (loader.next(batch)) …    the same with a chosen epoch
//
// The loader must outlive the loop: `for (… : *data.train_dataloader())` does not keep the loader alive. Used
// from one thread.
class KINDLING_API DataLoader {
 public:
  // Throws DataError for an empty set, a batch_size below 1 and an unknown value of `resident`.
  DataLoader(std::shared_ptr<const Dataset> dataset, DataLoaderOptions options);
  ~DataLoader();
  DataLoader(const DataLoader&) = delete;
  DataLoader& operator=(const DataLoader&) = delete;

  std::int64_t num_batches() const noexcept;
  std::int64_t num_samples() const noexcept;  // of an epoch
  // True for data without an end (Dataset::kEndless): a loop over the loader ends only by a break.
  bool is_endless() const noexcept;
  const Dataset& dataset() const noexcept { return *dataset_; }
  const DataLoaderOptions& options() const noexcept { return options_; }

  // A position in the data. Any number of cursors may use a loader, which must outlive them.
  class KINDLING_API Cursor {
   public:
    explicit Cursor(DataLoader& loader);

    // Sets the device that the batches are for. For a GPU they are gathered in pinned memory, so that their
    // copies need no wait. A buffer is written again only after the GPU has read it (checked by polling an
    // event on its current stream).
    void stage_for(Device device);
    // Copies the samples to the device of stage_for() if `resident` allows it, and gathers batches there
    // until an operator writes to the data set's tensors. The copy is freed with the last cursor that uses
    // it. Throws DataError if `resident` is "on" and the samples cannot be cached.
    void cache_on_device();
    [[deprecated("use cache_on_device()")]] void keep_samples_there() { cache_on_device(); }
    // Takes the samples rank, rank + size, rank + 2·size, … of each epoch's order, each of them once; with
    // drop_last, as many as every rank has. All ranks have equally many batches: a rank without a sample for
    // its last batch repeats its first batch, which does not count (Batch::num_valid()). Applies from the
    // next seek() on.
    void shard(std::int64_t rank, std::int64_t size);
    // Replaces the loader's batch_size. Applies from the next seek() on.
    void take_batches_of(std::int64_t batch_size);
    // Ignores the loader's shuffling: samples come in order, those of a sampler as it chooses them for epoch
    // 0. Applies from the next seek() on.
    void keep_order() noexcept;
    // Endless data begin with this sample, for all ranks together. Applies from the next seek() on.
    void begin_at(std::int64_t sample) noexcept;
    // Says that batches from this one on will not be requested, so workers do not gather them ahead.
    void gather_ahead_up_to(std::int64_t batch) noexcept { end_of_ahead_ = batch; }
    // Moves to batch number `batch` of an epoch, which next() then returns.
    void seek(std::int64_t epoch, std::int64_t batch = 0);
    // Gets the next batch of the epoch. Returns false after the last one (`batch` is then unchanged). Throws
    // DataError for a data set that returns a wrong number of samples.
    bool next(Batch& batch);
    // Returns a text that identifies the order of the epoch of the latest seek(), before it is sharded; empty
    // if it was not drawn. It begins with the number of samples and a space.
    const std::string& order_fingerprint() const noexcept { return order_fingerprint_; }
    // Returns the indices of the samples in the latest batch: int64 [samples] on the CPU.
    at::Tensor indices() const;
    // Returns whether batches are views of the data set's tensors.
    bool gives_views() const;
    // Throws DataError if the latest batch was such a view and an operator has written to it since next().
    void require_unwritten() const;
    std::int64_t num_batches() const noexcept;
    std::int64_t global_batch_size() const noexcept { return batch_size_ * num_ranks_; }  // of all ranks

   private:
    bool uses_resident();
    Batch resident_batch(std::int64_t begin, std::int64_t count);
    struct Range {
      std::int64_t begin, count;
      bool is_repeated;
    };
    Range range_of(std::int64_t batch) const noexcept;  // in the order of this rank's samples
    at::Tensor indices_in(const Range& range) const;
    bool draws_order() const noexcept {
      return (loader_->options_.shuffle || loader_->options_.sampler) && !keeps_order_;
    }
    bool has_order() const noexcept;  // that seek() makes
    at::Tensor of_this_rank(const at::Tensor& of_all) const;
    std::int64_t num_samples() const noexcept;
    GatherRequest request_of(std::int64_t batch) const;
    void next_gathered(Batch& batch);
    void cancel_ahead() noexcept;

    DataLoader* loader_;
    Device device_;
    std::int64_t rank_ = 0, num_ranks_ = 1, batch_size_;
    bool keeps_order_ = false;
    at::Tensor order_;  // int64 [samples] of this epoch; undefined before the first seek(), if has_order()
    std::string order_fingerprint_;
    at::Tensor streams_;  // of random numbers, as order_; undefined: those of the samples
    std::shared_ptr<const ResidentTensors> resident_;  // nullptr: batches are gathered on the host
    at::Tensor device_order_;                          // order_ on the device; undefined until it is needed
    std::int64_t batch_index_ = 0, epoch_ = 0;
    std::optional<std::int64_t> version_of_view_{};  // of the latest batch, if it was a view
    std::int64_t first_sample_ = 0;                  // of endless data
    std::optional<std::int64_t> end_of_ahead_{};
    struct Ahead;
    struct OfThisCursor {  // a copy of a cursor has none
      OfThisCursor() = default;
      OfThisCursor(const OfThisCursor&) noexcept {}
      OfThisCursor(OfThisCursor&&) = default;
      OfThisCursor& operator=(const OfThisCursor&) noexcept { return value = nullptr, *this; }
      OfThisCursor& operator=(OfThisCursor&&) = default;
      ~OfThisCursor() = default;
      std::shared_ptr<Ahead> value{};
    } ahead_{};
  };

  // These use the loader's own cursor.
  void stage_for(Device device) { cursor_.stage_for(device); }
  void cache_on_device() { cursor_.cache_on_device(); }
  [[deprecated("use cache_on_device()")]] void keep_samples_there() { cache_on_device(); }
  void start_epoch(std::int64_t epoch);
  bool next(Batch& batch);

  // One epoch, batch by batch, for range-based loops.
  class Iterator {
   public:
    using value_type = Batch;
    using difference_type = std::ptrdiff_t;
    explicit Iterator(Cursor cursor) : cursor_(std::move(cursor)) { ++*this; }
    const Batch& operator*() const { return batch_; }
    Iterator& operator++() {
      batch_.clear();  // releases the buffer before the next batch is requested
      cursor_.require_unwritten();
      is_at_end_ = !cursor_.next(batch_);
      return *this;
    }
    void operator++(int) { ++*this; }
    friend bool operator==(const Iterator& it, std::default_sentinel_t) { return it.is_at_end_; }

   private:
    Cursor cursor_;
    Batch batch_;
    bool is_at_end_ = false;
  };
  Iterator begin();
  std::default_sentinel_t end() const noexcept { return {}; }

  // The epoch of the next loop.
  std::int64_t next_epoch() const noexcept { return next_epoch_; }
  void set_next_epoch(std::int64_t epoch) noexcept { next_epoch_ = epoch; }

 private:
  void check_options() const;
  at::Tensor drawn_order(std::int64_t epoch) const;
  at::Tensor kept_order() const;

  std::shared_ptr<const Dataset> dataset_;
  DataLoaderOptions options_;
  std::vector<Batch> views_;                       // of every batch, if the set has views
  std::unique_ptr<BatchGatherer> gatherer_;        // outlives the loader's cursor
  std::weak_ptr<const ResidentTensors> resident_;  // shared by its cursors
  Cursor cursor_;
  std::int64_t next_epoch_ = 0;
};

}  // namespace kindling
