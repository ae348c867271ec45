#include "kindling/data/data_loader.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty_like.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "data/loading/batch_gatherer.h"
#include "data/loading/resident_tensors.h"
#include "kindling/base/error.h"
#include "kindling/base/log.h"
#include "kindling/data/dataset.h"
#include "kindling/data/sample_random.h"
#include "kindling/data/sampler.h"
#include "kindling/device/device.h"
#include "kindling/tensors/batch.h"
#include "kindling/tensors/move.h"
#include "tensors/shape_text.h"

namespace kindling {

namespace {

// Returns a text that other orders of as many samples do not have: an FNV-1a hash of 64-bit words, rotated
// because a multiplication moves bits upwards only.
std::string fingerprint_of(const at::Tensor& order) {
  std::uint64_t hash = 0xcbf29ce484222325;
  const auto* const index = order.const_data_ptr<std::int64_t>();
  for (std::int64_t i = 0; i < order.numel(); ++i) {
    hash ^= static_cast<std::uint64_t>(index[i]);
    hash = std::rotl(hash * 0x100000001b3, 29);
  }
  return std::to_string(order.numel()) + " samples, " + std::to_string(hash);
}

// Returns a number that grows with every write to a tensor of the batch; nothing for tensors that were
// created in inference mode, whose writes are not counted.
std::optional<std::int64_t> version_of(const Batch& batch) {
  std::int64_t version = 0;
  for (const at::Tensor& tensor : batch.tensors()) {
    if (tensor.is_inference()) return std::nullopt;
    version += tensor._version();
  }
  return version;
}

// Returns the streams of random numbers for the samples of an epoch. A sample that is drawn again gets
// another one each time, which depends on how often it has come before.
at::Tensor streams_of(const at::Tensor& order, std::int64_t num_samples) {
  constexpr std::int64_t kMostTimes = std::int64_t{1} << 14;  // then numbers come again
  at::Tensor streams = order.clone();
  auto* const stream = streams.mutable_data_ptr<std::int64_t>();
  const auto number = [&](auto& times) {
    for (std::int64_t i = 0; i < streams.numel(); ++i) {
      auto& count = times[static_cast<std::size_t>(stream[i])];
      stream[i] += (count++ % kMostTimes) * Dataset::kEndless;
    }
  };
  if (num_samples <= 8 * streams.numel()) {
    std::vector<std::int32_t> times(static_cast<std::size_t>(num_samples));
    number(times);
  } else {  // a few samples of many
    std::unordered_map<std::size_t, std::int32_t> times;
    number(times);
  }
  return streams;
}

}  // namespace

// The batches that workers gather for a cursor, from its next one on.
struct DataLoader::Cursor::Ahead {
  explicit Ahead(BatchGatherer& of) : gatherer(of), workers(of.workers()) {}
  ~Ahead() { cancel(); }
  Ahead(const Ahead&) = delete;
  Ahead& operator=(const Ahead&) = delete;

  // From the last on, so that none begins in the meantime.
  void cancel() noexcept {
    for (; !pending.empty(); pending.pop_back()) gatherer.cancel(pending.back());
  }

  BatchGatherer& gatherer;
  std::shared_ptr<WorkerPool> workers;  // which end with the last cursor that uses them
  std::deque<BatchGatherer::Pending> pending{};
};

DataLoader::DataLoader(std::shared_ptr<const Dataset> dataset, DataLoaderOptions options)
    : dataset_(std::move(dataset)), options_(options), cursor_(*this) {
  check_options();
  gatherer_ = std::make_unique<BatchGatherer>(dataset_, options_.num_workers);
}

void DataLoader::check_options() const {
  if (options_.batch_size < 1)
    throw DataError({.place = "DataLoader",
                     .found = "batch_size is " + std::to_string(options_.batch_size),
                     .wanted = "at least 1"});
  if (options_.resident != "auto" && options_.resident != "on" && options_.resident != "off")
    throw DataError({.place = "DataLoader",
                     .found = "resident is \"" + options_.resident + "\"",
                     .wanted = "auto, on or off"});
  if (options_.order_seed != "sum" && options_.order_seed != "mixed")
    throw DataError({.place = "DataLoader",
                     .found = "order_seed is \"" + options_.order_seed + "\"",
                     .wanted = "sum or mixed"});
  if (options_.num_workers && *options_.num_workers < 0)
    throw DataError({.place = "DataLoader",
                     .found = "num_workers is " + std::to_string(*options_.num_workers),
                     .wanted = "at least 0"});
  if (!dataset_ || dataset_->size() < 1)
    throw DataError(
        {.place = "DataLoader", .found = "the data set is empty", .wanted = "at least one sample"});
  if (num_batches() == 0)
    throw DataError({.place = "DataLoader",
                     .found = "drop_last leaves no batch of " + std::to_string(options_.batch_size) +
                              " among " + std::to_string(num_samples()) + " samples",
                     .wanted = "a smaller batch_size"});
}

DataLoader::~DataLoader() = default;

std::int64_t DataLoader::num_samples() const noexcept {
  return options_.sampler ? options_.sampler->size() : dataset_->size();
}

bool DataLoader::is_endless() const noexcept {
  return !options_.sampler && dataset_->size() == Dataset::kEndless;
}

std::int64_t DataLoader::num_batches() const noexcept {
  const std::int64_t n = num_samples(), size = options_.batch_size;
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

DataLoader::Cursor::Cursor(DataLoader& loader)
    : loader_(&loader), device_(cpu()), batch_size_(loader.options_.batch_size) {}

void DataLoader::Cursor::stage_for(Device device) {
  cancel_ahead();
  if (device != device_) resident_ = nullptr;
  device_ = device;
}

void DataLoader::Cursor::cache_on_device() {
  cancel_ahead();
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
  cancel_ahead();
  order_ = at::Tensor();
  rank_ = rank;
  num_ranks_ = size;
}

void DataLoader::Cursor::keep_order() noexcept {
  cancel_ahead();
  order_ = at::Tensor();
  keeps_order_ = true;
}

void DataLoader::Cursor::take_batches_of(std::int64_t batch_size) {
  cancel_ahead();
  batch_size_ = batch_size;
}

std::int64_t DataLoader::Cursor::num_samples() const noexcept {
  const std::int64_t n = loader_->num_samples();
  return loader_->options_.drop_last ? n / num_ranks_ : (n - rank_ + num_ranks_ - 1) / num_ranks_;
}

// The number of batches of rank 0, which has the most samples.
std::int64_t DataLoader::Cursor::num_batches() const noexcept {
  const std::int64_t n = loader_->num_samples(), size = batch_size_;
  if (loader_->options_.drop_last) return n / num_ranks_ / size;
  return ((n + num_ranks_ - 1) / num_ranks_ + size - 1) / size;
}

DataLoader::Cursor::Range DataLoader::Cursor::range_of(std::int64_t batch) const noexcept {
  const std::int64_t size = batch_size_, begin = batch * size;
  if (begin < num_samples())
    return {.begin = begin, .count = std::min(size, num_samples() - begin), .is_repeated = false};
  return {.begin = 0, .count = std::clamp<std::int64_t>(num_samples(), 1, size), .is_repeated = true};
}

bool DataLoader::Cursor::gives_views() const {
  return !draws_order() && !loader_->options_.sampler && !loader_->is_endless() && device_.is_cpu() &&
         num_ranks_ == 1 && batch_size_ == loader_->options_.batch_size && loader_->dataset_->has_views();
}

void DataLoader::Cursor::begin_at(std::int64_t sample) noexcept {
  cancel_ahead();
  if (loader_->is_endless()) first_sample_ = sample;
}

bool DataLoader::Cursor::has_order() const noexcept { return !gives_views() && !loader_->is_endless(); }

void DataLoader::Cursor::seek(std::int64_t epoch, std::int64_t batch) {
  cancel_ahead();
  version_of_view_.reset();
  batch_index_ = batch;
  epoch_ = epoch;
  if (!has_order()) return;
  const at::Tensor before = order_;
  order_fingerprint_.clear();
  if (draws_order()) {
    order_ = loader_->drawn_order(epoch);
    order_fingerprint_ = fingerprint_of(order_);
  } else if (!order_.defined() || num_ranks_ > 1) {
    order_ = loader_->kept_order();
  }
  if (order_.is_same(before)) return;
  streams_ = at::Tensor();
  if (loader_->options_.sampler && loader_->options_.num_random_numbers > 0)
    streams_ = of_this_rank(streams_of(order_, loader_->dataset_->size()));
  order_ = of_this_rank(order_);
  device_order_ = at::Tensor();
}

at::Tensor DataLoader::Cursor::of_this_rank(const at::Tensor& of_all) const {
  if (num_ranks_ == 1) return of_all;
  return of_all.index_select(0, at::arange(std::max<std::int64_t>(num_samples(), 1))
                                    .mul_(num_ranks_)
                                    .add_(rank_)
                                    .remainder_(loader_->num_samples()));
}

// The order of the data set; of a sampler's first epoch, its samples in that order.
at::Tensor DataLoader::kept_order() const {
  return options_.sampler ? std::get<0>(drawn_order(0).sort()) : at::arange(dataset_->size(), at::kLong);
}

at::Tensor DataLoader::drawn_order(std::int64_t epoch) const {
  if (!options_.sampler)
    return options_.order_seed == "mixed" ? mixed_order(dataset_->size(), options_.seed, epoch)
                                          : shuffled_order(dataset_->size(), options_.seed, epoch);
  const at::Tensor order = options_.sampler->order(epoch);
  const auto refuse = [&](const std::string& found) {
    throw DataError({.place = "Sampler::order",
                     .found = found,
                     .wanted = "int64 [" + std::to_string(num_samples()) + "] on the CPU, from 0 to " +
                               std::to_string(dataset_->size() - 1)});
  };
  if (!order.defined()) refuse("an undefined tensor");
  if (!order.is_cpu() || order.scalar_type() != at::kLong || order.dim() != 1 ||
      order.size(0) != num_samples())
    refuse("a tensor of the shape " + shape_text(order) + " and dtype " +
           std::string(c10::toString(order.scalar_type())) + " on " + order.device().str());
  for (const at::Tensor& index : {order.min(), order.max()})
    if (const auto number = index.item<std::int64_t>(); number < 0 || number >= dataset_->size())
      refuse("the index " + std::to_string(number));
  return order.clone(at::MemoryFormat::Contiguous);  // the sampler may use its tensor again
}

at::Tensor DataLoader::Cursor::indices() const {
  return indices_in(range_of(std::max<std::int64_t>(batch_index_ - 1, 0))).clone();
}

at::Tensor DataLoader::Cursor::indices_in(const Range& range) const {
  if (order_.defined()) return order_.narrow(0, range.begin, range.count);
  const std::int64_t first = first_sample_ + range.begin * num_ranks_ + rank_;
  return at::arange(first, first + range.count * num_ranks_, num_ranks_, at::kLong);
}

GatherRequest DataLoader::Cursor::request_of(std::int64_t batch) const {
  return {.indices = indices_in(range_of(batch)),
          .streams = SampleStreams(loader_->options_.seed, epoch_),
          .device = device_};
}

void DataLoader::Cursor::next_gathered(Batch& batch) {
  BatchGatherer& gatherer = *loader_->gatherer_;
  const std::int64_t num_ahead = gatherer.num_ahead();
  if (num_ahead == 0) return gatherer.gather(request_of(batch_index_), batch);
  batch.clear();  // releases the previous buffer
  if (!ahead_.value) ahead_.value = std::make_shared<Ahead>(gatherer);
  auto& pending = ahead_.value->pending;
  const auto end_of_pending = [&] { return batch_index_ + static_cast<std::int64_t>(pending.size()); };
  const std::int64_t end =
      std::min({num_batches(), std::max(end_of_ahead_.value_or(num_batches()), batch_index_ + 1),
                batch_index_ + 1 + num_ahead});
  while (end_of_pending() < end)
    pending.push_back(gatherer.start(request_of(end_of_pending()), *ahead_.value->workers));
  const BatchGatherer::Pending first = std::move(pending.front());
  pending.pop_front();
  try {
    gatherer.finish(first, batch);
  } catch (...) {
    cancel_ahead();  // another call tries the same batch again
    throw;
  }
}

void DataLoader::Cursor::cancel_ahead() noexcept {
  if (ahead_.value) ahead_.value->cancel();
}

void DataLoader::Cursor::require_unwritten() const {
  if (!version_of_view_ || batch_index_ == 0) return;
  const auto latest = static_cast<std::size_t>(batch_index_ - 1);
  if (latest >= loader_->views_.size() || version_of(loader_->views_[latest]) == version_of_view_) return;
  throw DataError(
      {.place = "batch " + std::to_string(batch_index_) + " of an epoch in data-set order",
       .found = "an operator has written to its tensors, which are views of the data set: its samples have "
                "changed, for all later epochs",
       .wanted = "operators that return new tensors, such as x.div(255) instead of x.div_(255)",
       .remedy = "clone() what is to be written to, in on_after_batch_transfer() and in the model's steps "
                 "(a ReLU with inplace as the first layer writes to its input, too)"});
}

bool DataLoader::Cursor::next(Batch& batch) {
  version_of_view_.reset();
  if (!order_.defined() && has_order()) seek(epoch_, batch_index_);
  if (batch_index_ >= num_batches()) return false;
  const auto [begin, count, is_repeated] = range_of(batch_index_);
  if (gives_views()) {
    auto& views = loader_->views_;
    if (views.empty()) views.resize(static_cast<std::size_t>(num_batches()));
    Batch& view = views[static_cast<std::size_t>(batch_index_)];
    if (view.empty()) view = loader_->dataset_->slice(begin, begin + count);
    version_of_view_ = version_of(view);
    batch = version_of_view_ ? view : copy_to(view, cpu());  // a write to it would not be found
  } else if (uses_resident()) {
    batch = resident_batch(begin, count);
  } else {
    next_gathered(batch);
  }
  if (is_repeated) batch.mark_padding();
  ++batch_index_;
  if (loader_->options_.num_random_numbers > 0)
    batch.set_random_numbers(SampleStreams(loader_->options_.seed, epoch_)
                                 .numbers(streams_.defined() ? streams_.narrow(0, begin, count) : indices(),
                                          loader_->options_.num_random_numbers, !device_.is_cpu()));
  return true;
}

}  // namespace kindling
