#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "kindling/device/device.h"

namespace kindling {

// Copies bytes from one device to another, or within the host, in one copy or in many.
struct TransferRouteOptions {
  Device from = cpu(), to = cpu();
  bool pinned = false;  // the host memory is pinned; requires a GPU
  std::int64_t total_bytes = std::int64_t{64} << 20;
  std::int64_t num_copies = 1;  // divides total_bytes
};

class TransferRoute {
 public:
  explicit TransferRoute(const TransferRouteOptions& options);

  // Copies everything and returns when it has arrived. The host waits for each copy of pageable memory, but
  // only for the last one of pinned memory. Counted in transfer_counts().
  void run();
  // True if the target contains the bytes of the source.
  bool has_arrived() const;

 private:
  TransferRouteOptions options_;
  at::Tensor source_, target_;                             // uint8 [total_bytes]
  std::vector<at::Tensor> source_pieces_, target_pieces_;  // views of the two
};

}  // namespace kindling
