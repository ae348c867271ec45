#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>

#include "kindling/device/device.h"

namespace kindling {

// While it lives, a share of the memory that was free is not: of a card, or of the addresses that the process
// may have (ulimit -v). Where these have no limit, nothing is held of the host's.
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
