#include "kindling/device/device_memory.h"

#include <ATen/DeviceAccelerator.h>
#include <unistd.h>

#include <fstream>

#include "kindling/base/error.h"
#include "kindling/device/host_info.h"

namespace kindling {
namespace {

// The second number of /proc/self/statm: pages in memory.
std::int64_t resident_bytes() {
  std::ifstream stream("/proc/self/statm");
  std::int64_t all_pages = 0, resident_pages = 0;
  stream >> all_pages >> resident_pages;
  return resident_pages * static_cast<std::int64_t>(::sysconf(_SC_PAGESIZE));
}

DeviceMemory memory_of_the_host() {
  const HostInfo host = host_info();
  const std::int64_t resident = resident_bytes();
  return {.allocated_bytes = resident,
          .reserved_bytes = resident,
          .free_bytes = host.memory_available_bytes,
          .total_bytes = host.memory_total_bytes};
}

void require_gpu(Device device) {
  if (device.type() == gpu().type() && device.index() < num_gpus()) return;
  throw DeviceError({.place = "device_memory(" + device.str() + ")",
                     .found = "no such GPU: " + gpu_unavailable_reason(),
                     .wanted = "the CPU or one of try_all_gpus()"});
}

}  // namespace

DeviceMemory device_memory(Device device) {
  if (device.is_cpu()) return memory_of_the_host();
  require_gpu(device);
  const c10::DeviceIndex index = device.has_index() ? device.index() : at::accelerator::getDeviceIndex();
  DeviceMemory memory;
  // An allocator that has not been used yet has no statistics.
  if (at::getDeviceAllocator(device.type())->initialized()) {
    const auto stats = at::accelerator::getDeviceStats(index);
    constexpr auto kAll = static_cast<std::size_t>(c10::CachingAllocator::StatType::AGGREGATE);
    memory.allocated_bytes = stats.allocated_bytes[kAll].current;
    memory.reserved_bytes = stats.reserved_bytes[kAll].current;
  }
  const auto [free, total] = at::accelerator::getMemoryInfo(index);
  memory.free_bytes = static_cast<std::int64_t>(free);
  memory.total_bytes = static_cast<std::int64_t>(total);
  return memory;
}

}  // namespace kindling
