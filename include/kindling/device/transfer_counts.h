#pragma once

#include <array>
#include <cstdint>
#include <utility>

#include "kindling/base/export.h"

namespace kindling {

// Counts what Kindling itself has moved between host and devices, and how often it made the host wait for a
// device. Copies within the host or within one device do not count.
struct TransferCounts {
  std::int64_t host_to_device_copies = 0;
  std::int64_t host_to_device_bytes = 0;
  std::int64_t device_to_host_copies = 0;
  std::int64_t device_to_host_bytes = 0;
  std::int64_t host_waits = 0;

  // Their names in logs and reports, in order.
  static constexpr std::array<std::pair<const char*, std::int64_t TransferCounts::*>, 5> kNames{{
      {"host_waits", &TransferCounts::host_waits},
      {"device_to_host_copies", &TransferCounts::device_to_host_copies},
      {"device_to_host_bytes", &TransferCounts::device_to_host_bytes},
      {"host_to_device_copies", &TransferCounts::host_to_device_copies},
      {"host_to_device_bytes", &TransferCounts::host_to_device_bytes},
  }};

  friend TransferCounts operator-(TransferCounts a, const TransferCounts& b) {
    for (const auto& [name, count] : kNames) a.*count -= b.*count;
    return a;
  }
  friend bool operator==(const TransferCounts&, const TransferCounts&) = default;
};

// Returns the running counts of the calling thread (a Trainer lives on one thread, so two Trainers have
// separate counts).
KINDLING_API TransferCounts& transfer_counts() noexcept;

}  // namespace kindling
