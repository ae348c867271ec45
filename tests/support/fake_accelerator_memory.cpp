// Device memory: one reserved address range per device, whose used part can be switched off and on in one
// call.
#include <ATen/core/CachingHostAllocator.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/impl/alloc_cpu.h>
#include <c10/util/Exception.h>
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>
#include <functional>
#include <iterator>
#include <map>
#include <vector>

#include "fake_accelerator_parts.h"

namespace kindling::fake {
namespace {

constexpr size_t kArenaBytes = size_t{16} << 30;  // address space only; pages cost when used
constexpr size_t kGrowthBytes = size_t{4} << 20;
constexpr size_t kSmallestBlock = 64;
constexpr int kFreshByte = 0xFF;  // as a float NaN, as an index -1: use of uninitialised memory shows

class Arena {
 public:
  Arena() {
    void* range = mmap(nullptr, kArenaBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    TORCH_CHECK(range != MAP_FAILED, "the fake accelerator cannot reserve ", kArenaBytes,
                " bytes of addresses");
    base_ = static_cast<std::byte*>(range);
  }

  bool contains(const void* data) const {
    const std::less<const void*> before;
    return !before(data, base_) && before(data, base_ + kArenaBytes);
  }

  // Blocks of powers of two, each size with its own free list: no fragmentation, at the cost of address
  // space.
  void* take(size_t nbytes) {
    const size_t block = std::bit_ceil(std::max(nbytes, kSmallestBlock));
    auto& free_blocks = free_[block];
    if (!free_blocks.empty()) {
      void* reused = free_blocks.back();
      free_blocks.pop_back();
      return reused;
    }
    TORCH_CHECK_WITH(OutOfMemoryError, used_ + block <= kArenaBytes, "the fake accelerator is out of memory");
    used_ += block;
    grow();
    return base_ + used_ - block;
  }

  void give_back(void* data, size_t nbytes) {
    free_[std::bit_ceil(std::max(nbytes, kSmallestBlock))].push_back(data);
  }

  size_t used() const { return used_; }

  void set_reachable(bool reachable) const {
    if (committed_ == 0) return;
    const int failed = mprotect(base_, committed_, reachable ? PROT_READ | PROT_WRITE : PROT_NONE);
    TORCH_CHECK(failed == 0, "the fake accelerator cannot change the protection of its memory");
  }

 private:
  // Only called while the memory is in reach.
  void grow() {
    if (used_ <= committed_) return;
    committed_ = std::min(kArenaBytes, (used_ / kGrowthBytes + 1) * kGrowthBytes);
    set_reachable(true);
  }

  std::byte* base_ = nullptr;
  size_t used_ = 0;
  size_t committed_ = 0;
  std::map<size_t, std::vector<void*>> free_;
};

struct Memory {
  std::mutex mutex;
  std::array<Arena, kDeviceCount> arenas;
  std::unordered_map<void*, size_t> sizes;  // bytes asked for, of each live block
  int num_users = 0;
  bool is_protected = false;

  void set_reachable(bool reachable) {
    for (const Arena& arena : arenas) arena.set_reachable(reachable);
  }
};

Memory& memory() {
  static auto* const only = new Memory;
  return *only;
}

void change_live_bytes(c10::DeviceIndex index, int64_t bytes) {
  const std::lock_guard lock(ledger().mutex);
  auto& counts = ledger().counts;
  counts.live_bytes[index] += bytes;
  counts.peak_bytes[index] = std::max(counts.peak_bytes[index], counts.live_bytes[index]);
}

void release(void* data) {
  if (data == nullptr) return;
  const auto index = device_of(data);
  const std::lock_guard lock(memory().mutex);
  const auto block = memory().sizes.find(data);
  memory().arenas[index].give_back(data, block->second);
  change_live_bytes(index, -static_cast<int64_t>(block->second));
  memory().sizes.erase(block);
}

// What blocks have taken so far, given back or not.
size_t reserved_bytes(c10::DeviceIndex index) {
  const std::lock_guard lock(memory().mutex);
  return memory().arenas.at(index).used();
}

std::atomic<int64_t>& said_free_bytes() {
  static std::atomic<int64_t> bytes = -1;
  return bytes;
}

class DeviceMemory final : public c10::DeviceAllocator {
 public:
  at::DataPtr allocate(size_t nbytes) override { return allocate_on(current_device(), nbytes); }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, std::size_t nbytes) const override {
    const MemoryAccess access;
    std::memcpy(to, from, nbytes);
  }

  bool initialized() override { return true; }
  void emptyCache(c10::MempoolId_t /*pool*/) override {}
  void recordStream(const at::DataPtr& /*data*/, c10::Stream /*stream*/) override {
    count(&Counts::recorded_streams);
  }
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex index) override {
    c10::CachingDeviceAllocator::DeviceStats stats;
    const Counts now = counts();
    stats.allocated_bytes[0].current = now.live_bytes.at(index);
    stats.allocated_bytes[0].peak = now.peak_bytes.at(index);
    stats.reserved_bytes[0].current = static_cast<int64_t>(reserved_bytes(index));
    return stats;
  }
  void resetAccumulatedStats(c10::DeviceIndex /*index*/) override {}
  void resetPeakStats(c10::DeviceIndex index) override {
    const std::lock_guard lock(ledger().mutex);
    ledger().counts.peak_bytes.at(index) = ledger().counts.live_bytes.at(index);
  }
  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex index) override {
    const int64_t said = said_free_bytes();
    return {said < 0 ? kArenaBytes - reserved_bytes(index) : static_cast<size_t>(said), kArenaBytes};
  }
};

struct PinnedBlocks {
  std::mutex mutex;
  std::map<const void*, size_t, std::less<>> sizes;
};

PinnedBlocks& pinned_blocks() {
  static auto* const only = new PinnedBlocks;
  return *only;
}

size_t size_of_pinned(void* data) {
  const std::lock_guard lock(pinned_blocks().mutex);
  return pinned_blocks().sizes.at(data);
}

void release_pinned(void* data) {
  const size_t nbytes = size_of_pinned(data);
  finish_copies_with_host(data, nbytes);
  {
    const std::lock_guard lock(pinned_blocks().mutex);
    pinned_blocks().sizes.erase(data);
  }
  count(&Counts::pinned_live_bytes, -static_cast<int64_t>(nbytes));
  c10::free_cpu(data);
}

class PinnedMemory final : public at::HostAllocator {
 public:
  at::DataPtr allocate(size_t nbytes) override {
    if (nbytes == 0) return {nullptr, c10::Device(c10::DeviceType::CPU)};
    void* data = c10::alloc_cpu(nbytes);
    const std::lock_guard lock(pinned_blocks().mutex);
    pinned_blocks().sizes[data] = nbytes;
    count(&Counts::pinned_allocations);
    count(&Counts::pinned_live_bytes, static_cast<int64_t>(nbytes));
    return {data, data, &release_pinned, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release_pinned; }
  void copy_data(void* to, const void* from, std::size_t nbytes) const override {
    std::memcpy(to, from, nbytes);
  }

  // Late copies are carried out before their memory is given back.
  bool record_event(void* /*data*/, void* /*context*/, c10::Stream /*stream*/) override { return true; }
  void empty_cache() override {}
  at::HostStats get_stats() override { return {}; }
  void reset_accumulated_stats() override {}
  void reset_peak_stats() override {}
};

}  // namespace

void install_memory() {
  c10::SetAllocator(c10::DeviceType::PrivateUse1, device_allocator());
  at::setHostAllocator(c10::DeviceType::PrivateUse1, static_cast<at::HostAllocator*>(pinned_allocator()));
}

c10::Allocator* device_allocator() {
  static auto* const only = new DeviceMemory;
  return only;
}

c10::Allocator* pinned_allocator() {
  static auto* const only = new PinnedMemory;
  return only;
}

at::DataPtr allocate_on(c10::DeviceIndex index, size_t nbytes) {
  if (nbytes == 0) return {nullptr, device(index)};
  const MemoryAccess access;
  const std::lock_guard lock(memory().mutex);
  void* data = memory().arenas.at(index).take(nbytes);
  memory().sizes[data] = nbytes;
  change_live_bytes(index, static_cast<int64_t>(nbytes));
  std::memset(data, kFreshByte, nbytes);
  return {data, data, &release, device(index)};
}

bool is_pinned(const void* data) {
  const std::lock_guard lock(pinned_blocks().mutex);
  const auto& sizes = pinned_blocks().sizes;
  const auto after = sizes.upper_bound(data);
  if (after == sizes.begin()) return false;
  const auto& [begin, nbytes] = *std::prev(after);
  return static_cast<const std::byte*>(data) < static_cast<const std::byte*>(begin) + nbytes;
}

c10::DeviceIndex device_of(const void* data) {
  for (int index = 0; index < kDeviceCount; ++index) {
    if (memory().arenas[index].contains(data)) return static_cast<c10::DeviceIndex>(index);
  }
  return -1;
}

MemoryAccess::MemoryAccess() {
  const std::lock_guard lock(memory().mutex);
  if (memory().num_users++ == 0 && memory().is_protected) memory().set_reachable(true);
}

MemoryAccess::~MemoryAccess() {
  const std::lock_guard lock(memory().mutex);
  if (--memory().num_users == 0 && memory().is_protected) memory().set_reachable(false);
}

void set_free_bytes(int64_t bytes) { said_free_bytes() = bytes; }

void set_protected(bool on) {
  const std::lock_guard lock(memory().mutex);
  if (memory().is_protected == on) return;
  memory().is_protected = on;
  if (memory().num_users == 0) memory().set_reachable(!on);
}

}  // namespace kindling::fake
