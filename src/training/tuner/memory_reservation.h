#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>

#include "kindling/device/device.h"

namespace kindling {

// While it exists, holds a fraction of the free memory: of a GPU, or of the address space of the process
// (ulimit -v). Without such a limit nothing is held on the host.
class MemoryReservation {
 public:
  MemoryReservation(Device device, double share);
  ~MemoryReservation();
  MemoryReservation(const MemoryReservation&) = delete;
  MemoryReservation& operator=(const MemoryReservation&) = delete;

 private:
  void hold_addresses(double share);

  at::Tensor on_card_;
  void* addresses_ = nullptr;
  std::size_t num_addresses_ = 0;
};

}  // namespace kindling
