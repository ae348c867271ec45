#include "data/loading/batch_gatherer.h"

#include <ATen/DeviceAccelerator.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_like.h>
#include <c10/core/Event.h>
#include <c10/core/InferenceMode.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <exception>
#include <map>
#include <string>
#include <thread>
#include <typeinfo>
#include <utility>

#include "device/random_state.h"
#include "kindling/base/error.h"
#include "kindling/base/log.h"
#include "kindling/data/iterable_dataset.h"
#include "tensors/shape_text.h"

// Of the OpenMP library that LibTorch brings: sets the number of threads of the calling thread's operators.
extern "C" __attribute__((weak)) void omp_set_num_threads(int);

namespace kindling {

// One batch's memory, and an event after which the GPU has read it.
struct BatchGatherer::Buffer {
  Device device;  // of its batches
  Batch batch{};
  std::optional<c10::Event> read{};
  bool is_given = false;     // to a caller, and not known to have been returned
  bool is_reserved = false;  // a worker fills it

  explicit Buffer(Device where) : device(where) {}

  // Hands the batch to a caller.
  void give(Batch& to) {
    if (!device.is_cpu()) pin();
    is_given = true;
    to = batch;
  }

  bool is_held() const {
    for (const auto& tensor : batch.tensors())
      if (tensor.use_count() > 1 || tensor.storage().use_count() > 1) return true;
    return false;
  }

  bool is_free() {
    if (is_reserved || is_held()) return false;
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

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kMostHostBuffers = 4;
constexpr std::int64_t kBatchesPerWorker = 2;  // under way
constexpr std::int64_t kWarmUpBatches = 3, kMeasuredBatches = 5;
constexpr double kSmallestShare = 0.02;     // of the time of a step that is worth a worker
constexpr double kSmallestSeconds = 50e-6;  // of a batch; below, a worker's hand-over costs as much
constexpr std::int64_t kMostMeasuredWorkers = 8;
constexpr int kDrawsOfASet = 8;           // in a row
constexpr int kMostBadSamples = 8;        // while none is good
constexpr double kMostSearchSeconds = 2;  // for the sample that an error is about

double seconds_between(Clock::time_point begin, Clock::time_point end) {
  return std::chrono::duration<double>(end - begin).count();
}

// All loaders of a set that allows one call at a time take turns.
std::shared_ptr<std::recursive_mutex> turn_of(const Dataset& dataset) {
  if (dataset.is_thread_safe()) return nullptr;
  static std::mutex mutex;
  static std::map<const Dataset*, std::weak_ptr<std::recursive_mutex>> turns;
  const std::lock_guard lock(mutex);
  std::erase_if(turns, [](const auto& entry) { return entry.second.expired(); });
  std::weak_ptr<std::recursive_mutex>& known = turns[&dataset];
  std::shared_ptr<std::recursive_mutex> turn = known.lock();
  if (!turn) known = turn = std::make_shared<std::recursive_mutex>();
  return turn;
}

// Workers are parallel already: their operators use one thread each. The first call of an operator on a
// thread sets its number, here and inside LibTorch.
void use_one_thread_for_operators() {
  at::internal::lazy_init_num_threads();
  at::get_num_threads();
  if (omp_set_num_threads != nullptr) omp_set_num_threads(1);
}

// The same on the calling thread, for a batch that a worker would gather with one thread: large sums depend
// on the number.
class OneThreadForOperators {
 public:
  OneThreadForOperators() : before_(at::get_num_threads()) { use_one_thread_for_operators(); }
  ~OneThreadForOperators() {
    if (omp_set_num_threads != nullptr) omp_set_num_threads(before_);
  }
  OneThreadForOperators(const OneThreadForOperators&) = delete;
  OneThreadForOperators& operator=(const OneThreadForOperators&) = delete;

 private:
  int before_;
};

}  // namespace

void MeasuredWorkers::add(Clock::time_point begin, Clock::time_point end) {
  if (count_) return;
  if (num_batches_ >= kWarmUpBatches) {
    step_seconds_ += seconds_between(last_end_, begin);
    gather_seconds_ += seconds_between(begin, end);
  }
  last_end_ = end;
  if (++num_batches_ < kWarmUpBatches + kMeasuredBatches) return;
  if (gather_seconds_ < kMeasuredBatches * kSmallestSeconds ||
      gather_seconds_ < kSmallestShare * (gather_seconds_ + step_seconds_)) {
    count_ = 0;
    return;
  }
  const std::int64_t cores = std::max<std::int64_t>(std::thread::hardware_concurrency(), 1);
  const double steps = std::max(step_seconds_, gather_seconds_ / static_cast<double>(kMostMeasuredWorkers));
  count_ = std::min({static_cast<std::int64_t>(std::ceil(gather_seconds_ / steps)), kMostMeasuredWorkers,
                     std::max<std::int64_t>(cores - 1, 1)});
  log_info("data.num_workers: " + std::to_string(*count_) + " (measured)");
}

BatchGatherer::BatchGatherer(std::shared_ptr<const Dataset> dataset, std::optional<std::int64_t> num_workers)
    : dataset_(std::move(dataset)), wanted_workers_(num_workers), turn_(turn_of(*dataset_)) {}

BatchGatherer::~BatchGatherer() = default;

// A set that allows one call at a time, or is in memory, gets workers on request only.
bool BatchGatherer::may_use_workers() const {
  return wanted_workers_ ? *wanted_workers_ > 0 : !turn_ && !dataset_->has_views();
}

std::int64_t BatchGatherer::num_workers() const {
  if (!may_use_workers()) return 0;
  if (!wanted_workers_) return measured_.count().value_or(0);
  return turn_ ? 1 : *wanted_workers_;
}

std::int64_t BatchGatherer::num_ahead() const { return is_checked_ ? kBatchesPerWorker * num_workers() : 0; }

void BatchGatherer::gather(const GatherRequest& request, Batch& batch) {
  batch.clear();  // releases the previous buffer
  const std::shared_ptr<Buffer> buffer = free_buffer(request.device);
  if (!may_use_workers()) {
    fill_or_name_sample(*buffer, request);
    buffer->give(batch);
    return;
  }
  const auto begin = Clock::now();
  fill_alone(*buffer, request);
  buffer->give(batch);
  if (!wanted_workers_) measured_.add(begin, Clock::now());
}

std::shared_ptr<WorkerPool> BatchGatherer::workers() {
  std::shared_ptr<WorkerPool> workers = workers_.lock();
  if (!workers)
    workers_ = workers = std::make_shared<WorkerPool>(num_workers(), use_one_thread_for_operators);
  return workers;
}

BatchGatherer::Pending BatchGatherer::start(GatherRequest request, WorkerPool& workers) {
  const std::shared_ptr<Buffer> buffer = free_buffer(request.device);
  buffer->is_reserved = true;
  auto task = workers.submit([this, buffer, request] { fill(*buffer, request); });
  return {.request = std::move(request), .buffer = buffer, .task = std::move(task)};
}

void BatchGatherer::finish(const Pending& pending, Batch& batch) {
  batch.clear();
  Buffer& buffer = *pending.buffer;
  try {
    pending.task->wait();
  } catch (const std::exception& error) {
    buffer.is_reserved = false;
    buffer.batch.clear();  // it may be half full
    rethrow_with_sample(pending.request, error);
  } catch (...) {
    buffer.is_reserved = false;
    buffer.batch.clear();
    throw;
  }
  buffer.is_reserved = false;
  buffer.give(batch);
}

void BatchGatherer::cancel(const Pending& pending) noexcept {
  pending.task->cancel();
  pending.buffer->is_reserved = false;
}

std::shared_ptr<BatchGatherer::Buffer> BatchGatherer::free_buffer(Device device) {
  std::size_t num_held = 0;
  for (auto& buffer : buffers_) {
    if (buffer->device != device || buffer->is_reserved) continue;
    if (buffer->is_free()) return buffer;
    ++num_held;
  }
  // A set may return tensors that stay in use, such as parts of its own: such buffers cannot be reused, and
  // are not kept.
  if (device.is_cpu() && num_held >= kMostHostBuffers)
    buffers_.erase(std::ranges::find_if(
        buffers_, [&](const auto& buffer) { return buffer->device == device && !buffer->is_reserved; }));
  // Prefers one more buffer to a wait; the length of a GPU's queue bounds their number.
  return buffers_.emplace_back(std::make_shared<Buffer>(device));
}

void BatchGatherer::fill(Buffer& buffer, const GatherRequest& request) const {
  call_dataset(request.indices, request.streams, buffer.batch);
  for (const at::Tensor& tensor : buffer.batch.tensors())
    if (tensor.dim() == 0 || tensor.size(0) != request.indices.size(0))
      throw DataError({.place = "Dataset::gather",
                       .found = "a tensor of the shape " + shape_text(tensor) + " for " +
                                std::to_string(request.indices.size(0)) + " indices",
                       .wanted = "as many samples as indices, along dimension 0"});
}

void BatchGatherer::fill_or_name_sample(Buffer& buffer, const GatherRequest& request) const {
  try {
    fill(buffer, request);
  } catch (const std::exception& error) {
    buffer.batch.clear();  // it may be half full
    rethrow_with_sample(request, error);
  }
}

// As a worker would: the same bytes whoever gathers a batch.
void BatchGatherer::call_dataset(const at::Tensor& indices, const SampleStreams& streams,
                                 Batch& batch) const {
  std::unique_lock<std::recursive_mutex> turn;
  if (turn_) turn = std::unique_lock(*turn_);
  const c10::InferenceMode normal_mode(false);
  const at::NoGradGuard no_grad;
  const SampleStreams::Scope scope(streams);
  dataset_->gather(indices, batch);
}

void BatchGatherer::fill_alone(Buffer& buffer, const GatherRequest& request) {
  const OneThreadForOperators one_thread;
  if (is_checked_) return fill_or_name_sample(buffer, request);
  const std::vector<at::Tensor> before = random_state(cpu());
  int num_draws = 0;  // again and again: another thread may draw at the same moment
  while (num_draws < kDrawsOfASet && draws_from_the_generator(buffer, request)) ++num_draws;
  if (num_draws == kDrawsOfASet) {
    set_random_state(cpu(), before);
    if (wanted_workers_)
      throw DataError({.place = "data.num_workers = " + std::to_string(*wanted_workers_),
                       .found =
                           "Dataset::gather draws from LibTorch's default generator, whose numbers would "
                           "depend on what the workers do at the same time",
                       .wanted = "random numbers of the samples, kindling::sample_random(index)",
                       .remedy = "or num_workers = 0"});
    wanted_workers_ = 0;
    fill_or_name_sample(buffer, request);  // draws once, as in a run that does not check
  }
  is_checked_ = true;
}

bool BatchGatherer::draws_from_the_generator(Buffer& buffer, const GatherRequest& request) const {
  const at::Tensor before = random_state(cpu()).front();
  fill_or_name_sample(buffer, request);
  const at::Tensor after = random_state(cpu()).front();
  return std::memcmp(before.const_data_ptr(), after.const_data_ptr(), before.nbytes()) != 0;
}

// Looks for the sample alone: the set cannot say which one it was. If the first samples cannot be gathered
// alone, or if it takes long, the error is about something else.
void BatchGatherer::rethrow_with_sample(const GatherRequest& request, const std::exception& error) const {
  // A stream names the sample, and would have to read all samples again.
  if (dynamic_cast<const IterableDataset*>(dataset_.get()) != nullptr) throw;
  std::optional<std::int64_t> guilty;
  bool has_good = request.indices.numel() == 1;
  const std::string what = error.what();
  const auto begin = Clock::now();
  int num_bad = 0;
  for (std::int64_t i = 0; i < request.indices.numel() && !(guilty && has_good); ++i) {
    if (num_bad == kMostBadSamples || seconds_between(begin, Clock::now()) > kMostSearchSeconds) break;
    Batch alone;
    try {
      call_dataset(request.indices.narrow(0, i, 1), request.streams, alone);
      has_good = true;
    } catch (const std::exception& other) {
      ++num_bad;
      if (!guilty && typeid(other) == typeid(error) && what == other.what())
        guilty = request.indices.const_data_ptr<std::int64_t>()[i];
    }
  }
  if (!guilty || !has_good) throw;
  const std::string sample = "sample " + std::to_string(*guilty) + " of the data set, epoch " +
                             std::to_string(request.streams.epoch());
  if (const auto* data_error = dynamic_cast<const DataError*>(&error)) {
    ErrorParts parts = data_error->parts();
    parts.place = parts.place.empty() ? sample : sample + ": " + parts.place;
    throw DataError(std::move(parts));
  }
  log_error("data: the exception is about " + sample);  // whose type stays what it is
  throw;
}

}  // namespace kindling
