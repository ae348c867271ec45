// What the source files of the fake accelerator share. Locks are taken in the order streams, memory, ledger.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/TensorBase.h>
#include <c10/core/Allocator.h>
#include <c10/core/Storage.h>
#include <c10/core/Stream.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "fake_accelerator.h"

namespace torch {
class Library;
}

namespace kindling::fake {

// --- ledger (fake_accelerator.cpp) ---
struct Ledger {
  std::mutex mutex;
  Counts counts;
  std::unordered_map<std::string, int64_t> operator_calls;
};
Ledger& ledger();

inline void count(int64_t Counts::*field, int64_t amount = 1) {
  const std::lock_guard lock(ledger().mutex);
  ledger().counts.*field += amount;
}

// --- memory (fake_accelerator_memory.cpp) ---
void install_memory();
c10::Allocator* device_allocator();
at::DataPtr allocate_on(c10::DeviceIndex index, size_t nbytes);
c10::Allocator* pinned_allocator();
bool is_pinned(const void* data);
// -1 when `data` is not device memory.
c10::DeviceIndex device_of(const void* data);

// Device memory may be touched while one of these lives.
class MemoryAccess {
 public:
  MemoryAccess();
  ~MemoryAccess();
  MemoryAccess(const MemoryAccess&) = delete;
  MemoryAccess& operator=(const MemoryAccess&) = delete;
};

// --- devices and streams (fake_accelerator_streams.cpp) ---
void install_device_guard();
c10::DeviceIndex current_device();
c10::DeviceIndex exchange_device(c10::DeviceIndex index);
c10::Stream current_stream(c10::DeviceIndex index);

struct LateCopy {
  // Keeps the device's bytes alive. The host's side is not held, as a real device does not hold it: who looks
  // whether a staging buffer is still in use must not find the copy there.
  c10::Storage on_device;
  void* to_bytes = nullptr;
  const void* from_bytes = nullptr;
  size_t nbytes = 0;
};
bool late_copies();
// Whether the current stream of the device is another one than that of the beginning.
bool is_on_side_stream(c10::DeviceIndex device);
// Queues on the current stream of the device.
void enqueue_late_copy(c10::DeviceIndex device, LateCopy copy);
// Carries out what the current stream of the storage's device must have done before it uses the storage.
void finish_copies_of(const c10::Storage& device_storage);
// Carries out what reads or writes these bytes of the host, which are about to be given back.
void finish_copies_with_host(const void* data, size_t nbytes);
// Carries out all that was queued on the current stream of the device.
void finish_current_stream(c10::DeviceIndex device);

// --- generators and hooks (fake_accelerator_hooks.cpp) ---
void install_hooks();
const at::Generator& default_generator(c10::DeviceIndex index);
// The CPU generator behind a generator of the fake.
const at::Generator& cpu_generator_of(const at::Generator& generator);

// --- graphs (fake_accelerator_graph.cpp) ---
// Records the work of a stream during capture instead of doing it. One at a time.
class Capture {
 public:
  using Job = std::function<void()>;

  explicit Capture(c10::Stream on);

  static void begin(std::shared_ptr<Capture> capture);
  static void end();
  // Of the current stream of the device; nullptr: not captured.
  static std::shared_ptr<Capture> of(c10::DeviceIndex device);
  static bool is_of(const c10::Stream& stream);
  // Throws, and lets the capture fail, where the calling thread captures or `stream` is captured.
  static void require_none(const char* what, const c10::Stream* stream = nullptr);

  [[noreturn]] void refuse(const std::string& what);
  bool has_failed() const;
  c10::Stream stream() const { return stream_; }

  // Memory in which kernels compute what they would compute: it begins with what is on the device.
  c10::Storage shadow_of(const c10::Storage& on_device);
  // Memory that has been taken since the capture began.
  void own(const c10::Storage& on_device, c10::Storage shadow = {});
  // The same tensor for a replay. Memory from before the capture is not kept alive.
  at::TensorBase for_replay(const at::TensorBase& tensor);
  const at::Generator& generator() const { return generator_; }  // draws of the capture do not count
  void add(Job job);
  std::vector<Job> take_jobs() { return std::move(jobs_); }

 private:
  struct Known {
    c10::Storage on_device, shadow, borrowed;
  };
  Known& known(const c10::Storage& on_device);

  c10::Stream stream_;
  std::thread::id thread_ = std::this_thread::get_id();
  at::Generator generator_;
  std::unordered_map<c10::StorageImpl*, Known> known_;
  std::vector<Job> jobs_;
  std::string failure_;
};

// Work that has been captured.
class RecordedJobs {
 public:
  void begin();
  void end();
  void replay();
  void clear() { jobs_.clear(); }

 private:
  std::shared_ptr<Capture> capture_;
  c10::DeviceIndex device_ = 0;
  std::vector<Capture::Job> jobs_;
};

// --- kernels ---
// A CPU tensor over the same bytes (fake_accelerator_fallback.cpp), or over those of a capture. Valid while
// the fake one lives.
at::TensorBase cpu_twin(const at::TensorBase& fake, Capture* capture = nullptr);
void register_fallback(torch::Library& all_operators, torch::Library& aten);
void register_kernels(torch::Library& aten, torch::Library& aten_autograd);
void register_autocast(torch::Library& all_operators, torch::Library& aten);

}  // namespace kindling::fake
