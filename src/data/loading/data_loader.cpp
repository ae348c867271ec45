#include "kindling/data/data_loader.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/DeviceAccelerator.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/randperm.h>
#include <c10/core/Event.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <typeinfo>
#include <utility>
#include <vector>

#include "kindling/base/error.h"
#include "kindling/base/log.h"
#include "kindling/data/dataset.h"
#include "kindling/device/device.h"
#include "kindling/device/device_memory.h"
#include "kindling/tensors/batch.h"
#include "kindling/tensors/move.h"
#include "tensors/shape_text.h"

namespace kindling {

// The tensors of a data set in the memory of a GPU, where batches of them are gathered.
class ResidentTensors {
 public:
  // Copies them to the device if `wanted` ("auto", "on" or "off") allows it; otherwise returns nullptr.
  // Throws DataError if "on" is impossible.
  static std::shared_ptr<const ResidentTensors> of(const Dataset& dataset, Device device,
                                                   const std::string& wanted);

  Device device() const { return there_.front().device(); }
  // True if no operator has written to the set's tensors since the copy.
  bool are_up_to_date() const;
  // Gathers int64 [batch] indices on the GPU: one indexed copy per tensor, queued.
  Batch gather(const at::Tensor& indices) const;

 private:
  ResidentTensors(const std::vector<at::Tensor>& tensors, Device device);

  // The state of a tensor of the set when it was copied.
  struct Source {
    at::Tensor tensor;
    const void* bytes;
    std::int64_t version;
  };
  std::vector<Source> sources_;
  std::vector<at::Tensor> there_;
};

namespace {

constexpr std::size_t kMostHostBuffers = 4;

// The fraction of the free memory that "auto" may use: the rest is for the model, its optimizer and its
// steps.
constexpr double kMaxFractionOfFreeMemory = 0.25;

std::int64_t bytes_of(const std::vector<at::Tensor>& tensors) {
  std::int64_t bytes = 0;
  for (const at::Tensor& tensor : tensors) bytes += static_cast<std::int64_t>(tensor.nbytes());
  return bytes;
}

// Returns why batches of a set are not just rows of tensors; empty if they are. A custom class may build its
// batches differently.
std::string why_not_rows(const Dataset& dataset) {
  if (typeid(dataset) != typeid(TensorDataset)) return "a data set that is not a TensorDataset";
  const auto& tensors = static_cast<const TensorDataset&>(dataset).tensors();
  // Writes to such a tensor cannot be detected.
  if (std::ranges::any_of(tensors, [](const at::Tensor& tensor) { return tensor.is_inference(); }))
    return "a tensor that was created in inference mode";
  return {};
}

// Returns an empty string if they fit. If a GPU does not report its memory, the copy itself shows whether
// they fit.
std::string why_no_room(std::int64_t bytes, Device device, bool is_required) {
  const std::int64_t free = device_memory(device).free_bytes;
  const auto most =
      static_cast<std::int64_t>((is_required ? 1 : kMaxFractionOfFreeMemory) * static_cast<double>(free));
  if (bytes <= most || (free == 0 && is_required)) return {};
  return std::to_string(bytes) + " bytes of samples, but " + device.str() + " has only " +
         std::to_string(free) + " free bytes";
}

std::shared_ptr<const ResidentTensors> stay_on_host(const std::string& why, bool is_required) {
  if (is_required)
    throw DataError({.place = "data.resident = \"on\"",
                     .found = why,
                     .wanted = "tensors in memory (TensorDataset) that fit on the device",
                     .remedy = "use \"auto\" or \"off\": batches are then copied one by one"});
  log_info("data.resident: batches are copied one by one: " + why);
  return nullptr;
}

}  // namespace

ResidentTensors::ResidentTensors(const std::vector<at::Tensor>& tensors, Device device) {
  for (const at::Tensor& tensor : tensors) {
    sources_.push_back({tensor, tensor.const_data_ptr(), tensor._version()});
    there_.push_back(copy_to(tensor.detach(), device));
  }
}

std::shared_ptr<const ResidentTensors> ResidentTensors::of(const Dataset& dataset, Device device,
                                                           const std::string& wanted) {
  if (device.is_cpu() || wanted == "off") return nullptr;
  const bool is_required = wanted == "on";
  if (const std::string why = why_not_rows(dataset); !why.empty()) return stay_on_host(why, is_required);
  const auto& tensors = static_cast<const TensorDataset&>(dataset).tensors();
  const std::int64_t bytes = bytes_of(tensors);
  if (const std::string why = why_no_room(bytes, device, is_required); !why.empty())
    return stay_on_host(why, is_required);
  try {
    return std::shared_ptr<const ResidentTensors>(new ResidentTensors(tensors, device));
  } catch (const c10::OutOfMemoryError&) {  // the memory is fragmented
    return stay_on_host(std::to_string(bytes) + " bytes of samples, which do not fit on " + device.str(),
                        is_required);
  }
}

bool ResidentTensors::are_up_to_date() const {
  return std::ranges::all_of(sources_, [](const Source& source) {
    return source.tensor._version() == source.version && source.tensor.const_data_ptr() == source.bytes;
  });
}

Batch ResidentTensors::gather(const at::Tensor& indices) const {
  std::vector<at::Tensor> rows;
  for (const at::Tensor& tensor : there_) rows.push_back(at::index_select(tensor, /*dim=*/0, indices));
  return Batch(std::move(rows));
}

// One batch's memory, and an event after which the GPU has read it.
struct DataLoader::Buffer {
  Device device;  // of its batches
  Batch batch{};
  std::optional<c10::Event> read{};
  bool is_given = false;  // to a caller, and not known to have been returned

  bool is_held() const {
    for (const auto& tensor : batch.tensors())
      if (tensor.use_count() > 1 || tensor.storage().use_count() > 1) return true;
    return false;
  }

  bool is_free() {
    if (is_held()) return false;
    if (device.is_cpu()) return true;
    // All copies out of the batch are queued on the GPU's current stream, because no one holds it any more.
    if (is_given) {
      if (!read) read.emplace(device.type());
      read->record(at::accelerator::getCurrentStream(device.index()));
      is_given = false;
    }
    return !read || read->query();
  }

  // Moves tensors that the data set created to pinned memory; skips those that are pinned already.
  void pin() {
    for (std::size_t i = 0; i < batch.tensors().size(); ++i) {
      at::Tensor& tensor = batch.tensors()[i];
      if (tensor.is_pinned() || batch.stays_on_host(i)) continue;
      at::Tensor pinned = at::empty_like(tensor, tensor.options().pinned_memory(true));
      pinned.copy_(tensor);
      tensor = pinned;
    }
  }
};

DataLoader::DataLoader(std::shared_ptr<const Dataset> dataset, DataLoaderOptions options)
    : dataset_(std::move(dataset)), options_(options), cursor_(*this) {
  if (options_.batch_size < 1)
    throw DataError({.place = "DataLoader",
                     .found = "batch_size is " + std::to_string(options_.batch_size),
                     .wanted = "at least 1"});
  if (options_.resident != "auto" && options_.resident != "on" && options_.resident != "off")
    throw DataError({.place = "DataLoader",
                     .found = "resident is \"" + options_.resident + "\"",
                     .wanted = "auto, on or off"});
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

void DataLoader::start_epoch(std::int64_t epoch) {
  next_epoch_ = epoch + 1;
  cursor_.seek(epoch);
}

bool DataLoader::next(Batch& batch) { return cursor_.next(batch); }

DataLoader::Iterator DataLoader::begin() {
  Cursor cursor = cursor_;  // its device and shard
  cursor.seek(next_epoch_++);
  return Iterator(std::move(cursor));
}

void DataLoader::gather(const at::Tensor& indices, Device device, Batch& batch) {
  batch.clear();  // releases the previous buffer
  Buffer& buffer = free_buffer(device);
  dataset_->gather(indices, buffer.batch);
  for (const at::Tensor& tensor : buffer.batch.tensors())
    if (tensor.dim() == 0 || tensor.size(0) != indices.size(0))
      throw DataError({.place = "Dataset::gather",
                       .found = "a tensor of the shape " + shape_text(tensor) + " for " +
                                std::to_string(indices.size(0)) + " indices",
                       .wanted = "as many samples as indices, along dimension 0"});
  if (!device.is_cpu()) buffer.pin();
  buffer.is_given = true;
  batch = buffer.batch;
}

DataLoader::Buffer& DataLoader::free_buffer(Device device) {
  std::size_t num_held = 0;
  for (auto& buffer : buffers_) {
    if (buffer->device != device) continue;
    if (buffer->is_free()) return *buffer;
    ++num_held;
  }
  // A set may return tensors that stay in use, such as parts of its own: such buffers cannot be reused, and
  // are not kept.
  if (device.is_cpu() && num_held >= kMostHostBuffers)
    buffers_.erase(std::ranges::find(buffers_, device, [](const auto& buffer) { return buffer->device; }));
  // Prefers one more buffer to a wait; the length of a GPU's queue bounds their number.
  return *buffers_.emplace_back(std::make_unique<Buffer>(Buffer{.device = device}));
}

DataLoader::Cursor::Cursor(DataLoader& loader)
    : loader_(&loader), device_(cpu()), batch_size_(loader.options_.batch_size) {}

void DataLoader::Cursor::stage_for(Device device) {
  if (device != device_) resident_ = nullptr;
  device_ = device;
}

void DataLoader::Cursor::cache_on_device() {
  resident_ = loader_->resident_.lock();
  if (resident_ && (resident_->device() != device_ || !resident_->are_up_to_date())) resident_ = nullptr;
  if (!resident_)
    loader_->resident_ = resident_ =
        ResidentTensors::of(*loader_->dataset_, device_, loader_->options_.resident);
  device_order_ = at::Tensor();
}

bool DataLoader::Cursor::uses_resident() {
  if (resident_ && !resident_->are_up_to_date()) {
    log_info("data.resident: a tensor of the data set was modified; batches are now copied one by one");
    resident_ = nullptr;
  }
  return resident_ != nullptr;
}

// The whole order is copied at once.
Batch DataLoader::Cursor::resident_batch(std::int64_t begin, std::int64_t count) {
  if (!device_order_.defined()) {
    at::Tensor pinned = at::empty_like(order_, order_.options().pinned_memory(true));
    pinned.copy_(order_);
    device_order_ = copy_to(pinned, device_);
  }
  return resident_->gather(device_order_.narrow(0, begin, count));
}

void DataLoader::Cursor::shard(std::int64_t rank, std::int64_t size) {
  if (size < 1 || rank < 0 || rank >= size)
    throw DataError({.place = "shard",
                     .found = "rank " + std::to_string(rank) + " of " + std::to_string(size),
                     .wanted = "0 <= rank < size"});
  rank_ = rank;
  num_ranks_ = size;
}

std::int64_t DataLoader::Cursor::num_samples() const noexcept {
  const std::int64_t n = loader_->dataset_->size();
  return loader_->options_.drop_last ? n / num_ranks_ : (n - rank_ + num_ranks_ - 1) / num_ranks_;
}

// The number of batches of rank 0, which has the most samples.
std::int64_t DataLoader::Cursor::num_batches() const noexcept {
  const std::int64_t n = loader_->dataset_->size(), size = batch_size_;
  if (loader_->options_.drop_last) return n / num_ranks_ / size;
  return ((n + num_ranks_ - 1) / num_ranks_ + size - 1) / size;
}

DataLoader::Cursor::Range DataLoader::Cursor::range_of(std::int64_t batch) const noexcept {
  const std::int64_t size = batch_size_, begin = batch * size;
  if (begin < num_samples())
    return {.begin = begin, .count = std::min(size, num_samples() - begin), .is_repeated = false};
  return {.begin = 0, .count = std::clamp<std::int64_t>(num_samples(), 1, size), .is_repeated = true};
}

bool DataLoader::Cursor::uses_views() const {
  return !shuffles() && device_.is_cpu() && num_ranks_ == 1 && batch_size_ == loader_->options_.batch_size &&
         loader_->dataset_->has_views();
}

void DataLoader::Cursor::seek(std::int64_t epoch, std::int64_t batch) {
  batch_index_ = batch;
  if (uses_views()) return;
  const std::int64_t n = loader_->dataset_->size();
  const at::Tensor before = order_;
  if (shuffles()) {
    const auto seed = static_cast<std::uint64_t>(loader_->options_.seed + epoch);
    order_ = at::randperm(n, at::make_generator<at::CPUGeneratorImpl>(seed), at::kLong);
  } else if (!order_.defined() || num_ranks_ > 1) {
    order_ = at::arange(n, at::kLong);
  }
  if (num_ranks_ > 1)
    order_ = order_.index_select(
        0, at::arange(std::max<std::int64_t>(num_samples(), 1)).mul_(num_ranks_).add_(rank_).remainder_(n));
  if (!order_.is_same(before)) device_order_ = at::Tensor();
}

at::Tensor DataLoader::Cursor::indices() const {
  const auto [begin, count, is_repeated] = range_of(std::max<std::int64_t>(batch_index_ - 1, 0));
  return order_.defined() ? order_.narrow(0, begin, count).clone()
                          : at::arange(begin, begin + count, at::kLong);
}

bool DataLoader::Cursor::next(Batch& batch) {
  if (!uses_views() && !order_.defined()) seek(0, batch_index_);
  if (batch_index_ >= num_batches()) return false;
  const auto [begin, count, is_repeated] = range_of(batch_index_);
  if (uses_views()) {
    auto& views = loader_->views_;
    if (views.empty()) views.resize(static_cast<std::size_t>(num_batches()));
    Batch& view = views[static_cast<std::size_t>(batch_index_)];
    if (view.empty()) view = loader_->dataset_->slice(begin, begin + count);
    batch = view;
  } else if (uses_resident()) {
    batch = resident_batch(begin, count);
  } else {
    loader_->gather(order_.narrow(0, begin, count), device_, batch);
  }
  if (is_repeated) batch.mark_padding();
  ++batch_index_;
  return true;
}

}  // namespace kindling
