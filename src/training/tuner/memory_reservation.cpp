#include "training/tuner/memory_reservation.h"

#include <ATen/ops/empty.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "kindling/device/device_memory.h"

namespace kindling {
namespace {

// Returns how many bytes of address space the process may still use; 0: no limit, or none left.
double free_addresses() {
  rlimit limit{};
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return 0;
  double pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  const double taken = pages * static_cast<double>(::sysconf(_SC_PAGESIZE));
  return std::max(static_cast<double>(limit.rlim_cur) - taken, 0.0);
}

}  // namespace

MemoryReservation::MemoryReservation(Device device, double share) {
  if (device.is_cpu()) {
    hold_addresses(share);
    return;
  }
  const auto bytes = static_cast<std::int64_t>(share * static_cast<double>(device_memory(device).free_bytes));
  if (bytes > 0) on_card_ = at::empty({bytes}, at::device(device).dtype(at::kByte));
}

MemoryReservation::~MemoryReservation() {
  if (addresses_ != nullptr) ::munmap(addresses_, num_addresses_);
}

void MemoryReservation::hold_addresses(double share) {
  num_addresses_ = static_cast<std::size_t>(share * free_addresses());
  if (num_addresses_ == 0) return;
  void* const held = ::mmap(nullptr, num_addresses_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (held != MAP_FAILED) addresses_ = held;
}

}  // namespace kindling
