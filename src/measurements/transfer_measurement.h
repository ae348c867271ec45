#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "kindling/device/transfer_counts.h"
#include "measurements/timing.h"

namespace kindling {

// The way of some bytes from one device to another, or within the host, in one copy or in many.
struct TransferRouteOptions {
  Device from = cpu(), to = cpu();
  bool pinned = false;  // the memory of the host; needs a card
  std::int64_t total_bytes = std::int64_t{64} << 20;
  std::int64_t num_copies = 1;  // divides total_bytes
};

class TransferRoute {
 public:
  explicit TransferRoute(const TransferRouteOptions& options);

  // Copies everything and returns when it is there. The host waits for each copy of pageable memory, but only
  // for the last one of pinned memory. Counted in transfer_counts().
  void run();
  // Whether the target holds the bytes of the source.
  bool has_arrived() const;

 private:
  TransferRouteOptions options_;
  at::Tensor source_, target_;                             // uint8 [total_bytes]
  std::vector<at::Tensor> source_pieces_, target_pieces_;  // of the two
};

struct TransferResult {
  TransferRouteOptions route{};
  Timing time{};            // of all its copies
  TransferCounts counts{};  // of one run; nothing within the host

  double gigabytes_per_second() const { return static_cast<double>(route.total_bytes) / time.median_s / 1e9; }
  double seconds_per_copy() const { return time.median_s / static_cast<double>(route.num_copies); }
};

struct TransferOptions {
  std::int64_t total_bytes = std::int64_t{64} << 20;
  std::int64_t num_pieces = 16384;
};

// To a card and back, from pageable and from pinned memory, in one copy and in many. For the CPU, which is
// the host: copies within it, pageable ones only. Throws Error when other bytes arrive than were sent.
std::vector<TransferResult> measure_transfer(Device device, const TransferOptions& options,
                                             const TimingOptions& timing);

}  // namespace kindling
