#include "device/host_allocator.h"

#include <c10/core/CPUAllocator.h>
#include <c10/core/Device.h>
#include <c10/core/alignment.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <limits>

namespace kindling {
namespace {

// The address that malloc has returned lies before the aligned block.
void*& origin_of(void* data) { return static_cast<void**>(data)[-1]; }

void* aligned_block(std::size_t num_bytes) {
  constexpr std::size_t kAddition = c10::gAlignment + sizeof(void*);
  constexpr std::size_t kMost = std::numeric_limits<std::ptrdiff_t>::max() - kAddition;
  void* const origin = num_bytes <= kMost ? std::malloc(num_bytes + kAddition) : nullptr;
  if (origin == nullptr) return nullptr;
  const std::uintptr_t after = reinterpret_cast<std::uintptr_t>(origin) + kAddition;
  void* const data = static_cast<std::byte*>(origin) + (kAddition - after % c10::gAlignment);
  origin_of(data) = origin;
  return data;
}

void release(void* data) {
  if (data == nullptr) return;
  c10::profiledCPUMemoryReporter().Delete(data);
  std::free(origin_of(data));
}

class HostAllocator : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t num_bytes) override {
    if (num_bytes == 0) return {nullptr, nullptr, release, c10::Device(c10::DeviceType::CPU)};
    void* const data = aligned_block(num_bytes);
    if (data == nullptr) return c10::GetDefaultCPUAllocator()->allocate(num_bytes);  // throws its error
    c10::profiledCPUMemoryReporter().New(data, num_bytes);
    return {data, data, release, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return release; }
  void copy_data(void* to, const void* from, std::size_t num_bytes) const override {
    default_copy_data(to, from, num_bytes);
  }
};

}  // namespace

c10::Allocator& host_allocator() {
  static HostAllocator allocator;
  return allocator;
}

}  // namespace kindling
