#include "kindling/data/data_loader.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/DeviceAccelerator.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/randperm.h>
#include <c10/core/Event.h>

#include <algorithm>
#include <optional>

#include "kindling/base/error.h"

namespace kindling {

// One batch's memory, and when the card will have read it.
struct DataLoader::Buffer {
  Batch batch;
  std::optional<c10::Event> read;
  bool is_given = false;  // to a caller, and not known to have come back

  bool is_held() const {
    for (const auto& tensor : batch.tensors())
      if (tensor.use_count() > 1 || tensor.storage().use_count() > 1) return true;
    return false;
  }

  bool is_free(Device device) {
    if (is_held()) return false;
    if (device.is_cpu()) return true;
    // Only now that nobody holds the batch are all copies out of it queued, on the card's current stream.
    if (is_given) {
      if (!read) read.emplace(device.type());
      read->record(at::accelerator::getCurrentStream(device.index()));
      is_given = false;
    }
    return !read || read->query();
  }

  // Moves tensors that the data set made itself to pinned memory; those that were pinned before are left
  // alone.
  void pin() {
    for (auto& tensor : batch.tensors()) {
      if (tensor.is_pinned()) continue;
      at::Tensor pinned = at::empty_like(tensor, tensor.options().pinned_memory(true));
      pinned.copy_(tensor);
      tensor = pinned;
    }
  }
};

DataLoader::DataLoader(std::shared_ptr<const Dataset> dataset, DataLoaderOptions options)
    : dataset_(std::move(dataset)), options_(options), device_(cpu()) {
  if (options_.batch_size < 1)
    throw DataError({.place = "DataLoader",
                     .found = "batch_size is " + std::to_string(options_.batch_size),
                     .wanted = "at least 1"});
  if (!dataset_ || dataset_->size() < 1)
    throw DataError(
        {.place = "DataLoader", .found = "the data set is empty", .wanted = "at least one sample"});
  if (num_batches() == 0)
    throw DataError({.place = "DataLoader",
                     .found = "drop_last leaves no batch of " + std::to_string(options_.batch_size) +
                              " among " + std::to_string(dataset_->size()) + " samples",
                     .wanted = "a smaller batch_size"});
}

DataLoader::~DataLoader() = default;

std::int64_t DataLoader::num_batches() const noexcept {
  const std::int64_t n = dataset_->size(), size = options_.batch_size;
  return options_.drop_last ? n / size : (n + size - 1) / size;
}

void DataLoader::stage_for(Device device) {
  if (device == device_) return;
  device_ = device;
  buffers_.clear();
}

bool DataLoader::uses_views() const { return !options_.shuffle && device_.is_cpu(); }

void DataLoader::start_epoch(std::int64_t epoch) {
  next_epoch_ = epoch + 1;
  batch_index_ = 0;
  if (uses_views()) return;
  if (options_.shuffle) {
    const auto seed = static_cast<std::uint64_t>(options_.seed + epoch);
    order_ = at::randperm(dataset_->size(), at::make_generator<at::CPUGeneratorImpl>(seed), at::kLong);
  } else if (!order_.defined()) {
    order_ = at::arange(dataset_->size(), at::kLong);
  }
}

DataLoader::Iterator DataLoader::begin() {
  start_epoch(next_epoch_);
  return Iterator(*this);
}

bool DataLoader::next(Batch& batch) {
  if (!uses_views() && !order_.defined()) start_epoch(next_epoch_);
  if (batch_index_ >= num_batches()) return false;
  const std::int64_t begin = batch_index_ * options_.batch_size;
  const std::int64_t count = std::min(options_.batch_size, dataset_->size() - begin);
  if (uses_views()) {
    const auto index = static_cast<std::size_t>(batch_index_);
    if (index == views_.size()) views_.push_back(dataset_->slice(begin, begin + count));
    batch = views_[index];
  } else {
    batch.clear();  // the caller's hold on the former buffer ends here
    gather(begin, count, batch);
  }
  ++batch_index_;
  return true;
}

void DataLoader::gather(std::int64_t begin, std::int64_t count, Batch& batch) {
  Buffer& buffer = free_buffer();
  dataset_->gather(order_.narrow(0, begin, count), buffer.batch);
  if (!device_.is_cpu()) buffer.pin();
  buffer.is_given = true;
  batch = buffer.batch;
}

DataLoader::Buffer& DataLoader::free_buffer() {
  for (auto& buffer : buffers_)
    if (buffer->is_free(device_)) return *buffer;
  // Rather one more buffer than a wait; a card's queue of work bounds how many there can be.
  buffers_.push_back(std::make_unique<Buffer>());
  return *buffers_.back();
}

}  // namespace kindling
