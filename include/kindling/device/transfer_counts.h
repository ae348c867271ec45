#pragma once

#include <cstdint>

#include "kindling/base/export.h"

namespace kindling {

// What Kindling itself has moved between host and devices, and how often it made the host wait for a device.
// Copies within the host or within one device do not count.
struct TransferCounts {
  std::int64_t host_to_device_copies = 0;
  std::int64_t host_to_device_bytes = 0;
  std::int64_t device_to_host_copies = 0;
  std::int64_t device_to_host_bytes = 0;
  std::int64_t host_waits = 0;

  friend TransferCounts operator-(TransferCounts a, const TransferCounts& b) {
    a.host_to_device_copies -= b.host_to_device_copies;
    a.host_to_device_bytes -= b.host_to_device_bytes;
    a.device_to_host_copies -= b.device_to_host_copies;
    a.device_to_host_bytes -= b.device_to_host_bytes;
    a.host_waits -= b.host_waits;
    return a;
  }
  friend bool operator==(const TransferCounts&, const TransferCounts&) = default;
};

// The running counts of the calling thread (a Trainer lives on one thread, so two Trainers count apart).
KINDLING_API TransferCounts& transfer_counts() noexcept;

}  // namespace kindling
