// Devices, streams and events, and the copies that wait in streams. Kernels themselves run at once, in the
// calling thread; only late copies are ever queued.
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/util/Exception.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <deque>
#include <variant>

#include "fake_accelerator_parts.h"

namespace kindling::fake {
namespace {

constexpr int kQueriesUntilDone = 3;

// A position in a stream: its first `number` jobs must be done.
struct Milestone {
  c10::Stream stream;
  int64_t number = 0;
};

// In a stream: a copy to do, or another stream's milestone to wait for.
using Job = std::variant<LateCopy, Milestone>;

struct Queue {
  std::deque<Job> jobs;
  int64_t num_finished = 0;
  int num_queries = 0;
  int64_t num_issued() const { return num_finished + static_cast<int64_t>(jobs.size()); }
};

struct Event {
  Milestone done_at;
  int num_queries = 0;
  bool is_captured = false;
  std::chrono::steady_clock::time_point recorded;
};

class Streams {
 public:
  std::mutex mutex;
  std::atomic<bool> late_copies = false;

  // The rest is called with the mutex held.
  Milestone now(const c10::Stream& stream) { return {stream, queues_[stream].num_issued()}; }
  bool reached(const Milestone& milestone) {
    return queues_[milestone.stream].num_finished >= milestone.number;
  }

  void enqueue(const c10::Stream& stream, Job job) {
    queues_[stream].jobs.push_back(std::move(job));
    queues_[stream].num_queries = 0;
  }

  void finish(const Milestone& milestone) {
    Queue& queue = queues_[milestone.stream];
    while (queue.num_finished < milestone.number) {
      const Job job = std::move(queue.jobs.front());
      queue.jobs.pop_front();
      ++queue.num_finished;
      if (const auto* other = std::get_if<Milestone>(&job)) {
        finish(*other);
      } else {
        carry_out(std::get<LateCopy>(job));
      }
    }
  }

  void finish_device(c10::DeviceIndex index) {
    for (const c10::Stream& stream : known_streams()) {
      if (stream.device_index() == index) finish(now(stream));
    }
  }

  // The last job on the stream before the milestone that uses the storage, itself or through a stream it
  // waits for.
  Milestone last_use(const Milestone& until, const c10::Storage& storage) {
    const Queue& queue = queues_[until.stream];
    Milestone last{until.stream, 0};
    for (int64_t i = 0; queue.num_finished + i < until.number; ++i) {
      const Job& job = queue.jobs[static_cast<size_t>(i)];
      const auto* other = std::get_if<Milestone>(&job);
      const bool uses =
          other ? last_use(*other, storage).number > 0 : is_of(std::get<LateCopy>(job), storage);
      if (uses) last.number = queue.num_finished + i + 1;
    }
    return last;
  }

  void finish_with_host(const void* data, size_t nbytes) {
    const auto* begin = static_cast<const char*>(data);
    const auto lies_within = [&](const void* bytes) { return bytes >= begin && bytes < begin + nbytes; };
    for (const c10::Stream& stream : known_streams()) {
      const Queue& queue = queues_[stream];
      Milestone last{stream, 0};
      for (size_t i = 0; i < queue.jobs.size(); ++i) {
        const auto* copy = std::get_if<LateCopy>(&queue.jobs[i]);
        if (copy != nullptr && (lies_within(copy->to_bytes) || lies_within(copy->from_bytes)))
          last.number = queue.num_finished + static_cast<int64_t>(i) + 1;
      }
      finish(last);
    }
  }

  bool query(const Milestone& milestone, int& num_queries) {
    if (!reached(milestone) && ++num_queries >= kQueriesUntilDone) finish(milestone);
    return reached(milestone);
  }
  bool query(const c10::Stream& stream) { return query(now(stream), queues_[stream].num_queries); }

 private:
  static bool is_of(const LateCopy& copy, const c10::Storage& storage) {
    return copy.on_device.unsafeGetStorageImpl() == storage.unsafeGetStorageImpl();
  }

  static void carry_out(const LateCopy& copy) {
    const MemoryAccess access;
    std::memcpy(copy.to_bytes, copy.from_bytes, copy.nbytes);
  }

  std::vector<c10::Stream> known_streams() const {
    std::vector<c10::Stream> streams;
    for (const auto& [stream, queue] : queues_) streams.push_back(stream);
    return streams;
  }

  std::unordered_map<c10::Stream, Queue> queues_;  // references stay valid when it grows
};

Streams& streams() {
  static auto* const only = new Streams;
  return *only;
}

thread_local c10::DeviceIndex this_threads_device = 0;
thread_local std::array<c10::StreamId, kDeviceCount> this_threads_streams{};

c10::Stream stream_of(c10::DeviceIndex index, c10::StreamId id) {
  return c10::Stream(c10::Stream::UNSAFE, device(index), id);
}

struct DeviceGuard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override { return c10::DeviceType::PrivateUse1; }
  c10::DeviceIndex deviceCount() const noexcept override { return kDeviceCount; }
  c10::Device getDevice() const override { return device(current_device()); }
  c10::Device exchangeDevice(c10::Device to) const override { return device(exchange_device(to.index())); }
  void setDevice(c10::Device to) const override { exchange_device(to.index()); }
  void uncheckedSetDevice(c10::Device to) const noexcept override {
    if (to.has_index()) this_threads_device = to.index();
  }

  c10::Stream getStream(c10::Device of) const override { return current_stream(resolved(of)); }
  c10::Stream getDefaultStream(c10::Device of) const override { return stream_of(resolved(of), 0); }
  c10::Stream getStreamFromGlobalPool(c10::Device of, bool /*high_priority*/) const override {
    return getNewStream(of, 0);
  }
  c10::Stream getNewStream(c10::Device of, int /*priority*/) const override {
    static std::atomic<c10::StreamId> last_id = 0;
    return stream_of(resolved(of), ++last_id);
  }
  c10::Stream exchangeStream(c10::Stream to) const override {
    const c10::Stream before = current_stream(to.device_index());
    this_threads_streams.at(to.device_index()) = to.id();
    return before;
  }
  bool queryStream(const c10::Stream& stream) const override {
    Capture::require_none("a query", &stream);
    const std::lock_guard lock(streams().mutex);
    return streams().query(stream);
  }
  void synchronizeStream(const c10::Stream& stream) const override {
    Capture::require_none("a wait for a stream", &stream);
    count(&Counts::stream_waits);
    const std::lock_guard lock(streams().mutex);
    streams().finish(streams().now(stream));
  }
  void synchronizeDevice(c10::DeviceIndex index) const override {
    Capture::require_none("a wait for the device");
    count(&Counts::device_waits);
    const std::lock_guard lock(streams().mutex);
    streams().finish_device(index < 0 ? current_device() : index);
  }

  void record(void** event, const c10::Stream& stream, c10::DeviceIndex index,
              c10::EventFlag /*flag*/) const override {
    TORCH_CHECK(index == -1 || index == stream.device_index(), "Event device index ", index,
                " does not match recording stream's device index ", stream.device_index(), ".");
    const std::lock_guard lock(streams().mutex);
    const Event recorded{streams().now(stream), 0, Capture::is_of(stream), std::chrono::steady_clock::now()};
    if (*event == nullptr) {
      *event = new Event(recorded);
    } else {
      *static_cast<Event*>(*event) = recorded;
    }
  }
  void block(void* event, const c10::Stream& stream) const override {
    const bool is_captured = static_cast<Event*>(event)->is_captured;
    if (Capture::is_of(stream) != is_captured)
      Capture::require_none("a wait for another stream", &static_cast<Event*>(event)->done_at.stream);
    const std::lock_guard lock(streams().mutex);
    const Milestone& milestone = static_cast<Event*>(event)->done_at;
    if (milestone.stream != stream && !streams().reached(milestone)) streams().enqueue(stream, milestone);
  }
  bool queryEvent(void* event) const override {
    Capture::require_none("a query");
    if (event == nullptr) return true;
    const std::lock_guard lock(streams().mutex);
    auto& queried = *static_cast<Event*>(event);
    return streams().query(queried.done_at, queried.num_queries);
  }
  void synchronizeEvent(void* event) const override {
    Capture::require_none("a wait for an event");
    count(&Counts::event_waits);
    const std::lock_guard lock(streams().mutex);
    streams().finish(static_cast<Event*>(event)->done_at);
  }
  double elapsedTime(void* begin, void* end, c10::DeviceIndex /*index*/) const override {
    const auto time = static_cast<Event*>(end)->recorded - static_cast<Event*>(begin)->recorded;
    return std::chrono::duration<double, std::milli>(time).count();
  }
  void destroyEvent(void* event, c10::DeviceIndex /*index*/) const noexcept override {
    delete static_cast<Event*>(event);
  }

 private:
  static c10::DeviceIndex resolved(c10::Device of) { return of.has_index() ? of.index() : current_device(); }
};

}  // namespace

void install_device_guard() { c10::impl::registerDeviceGuard(c10::DeviceType::PrivateUse1, new DeviceGuard); }

c10::DeviceIndex current_device() { return this_threads_device; }

c10::Stream current_stream(c10::DeviceIndex index) {
  return stream_of(index, this_threads_streams.at(index));
}

c10::DeviceIndex exchange_device(c10::DeviceIndex index) {
  const c10::DeviceIndex before = this_threads_device;
  if (index < 0) return before;
  TORCH_CHECK(index < kDeviceCount, "invalid device ordinal: ", device(index), ", there are ", kDeviceCount);
  this_threads_device = index;
  return before;
}

bool late_copies() { return streams().late_copies; }

bool is_on_side_stream(c10::DeviceIndex device) { return current_stream(device).id() != 0; }

void set_late_copies(bool on) {
  streams().late_copies = on;
  if (on) return;
  const std::lock_guard lock(streams().mutex);
  for (int index = 0; index < kDeviceCount; ++index)
    streams().finish_device(static_cast<c10::DeviceIndex>(index));
}

void enqueue_late_copy(c10::DeviceIndex device, LateCopy copy) {
  const std::lock_guard lock(streams().mutex);
  streams().enqueue(current_stream(device), std::move(copy));
}

void finish_copies_of(const c10::Storage& device_storage) {
  if (!late_copies()) return;
  const std::lock_guard lock(streams().mutex);
  const Milestone now = streams().now(current_stream(device_storage.device().index()));
  streams().finish(streams().last_use(now, device_storage));
}

void finish_copies_with_host(const void* data, size_t nbytes) {
  const std::lock_guard lock(streams().mutex);
  streams().finish_with_host(data, nbytes);
}

void finish_current_stream(c10::DeviceIndex device) {
  if (!late_copies()) return;
  const std::lock_guard lock(streams().mutex);
  streams().finish(streams().now(current_stream(device)));
}

}  // namespace kindling::fake
