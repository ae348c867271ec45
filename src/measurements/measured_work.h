#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <memory>
#include <vector>

#include "graph/device/device_graph.h"
#include "kindling/metrics/epoch_log.h"
#include "measurements/measurements.h"

namespace kindling {

// Products of two n×n float32 matrices, whose Frobenius norms the host needs.
class LoggedProducts {
 public:
  enum class Way {
    one_at_a_time,  // the host reads each norm as soon as its product is started, and waits each time
    kept,           // in an EpochLog, which is copied to the host once
    preallocated,   // into existing memory; as one device graph if supported
    batched,        // all products by one operator, all norms by another
  };
  static constexpr std::array<Way, 4> kWays{Way::one_at_a_time, Way::kept, Way::preallocated, Way::batched};

  LoggedProducts(Device device, const LoggedProductsOptions& options);

  // Computes the norms, in order, on the host. Its copies and waits are counted in transfer_counts().
  std::vector<float> run(Way way);
  bool has_graph() const noexcept { return graph_ != nullptr; }

 private:
  std::vector<float> one_at_a_time();
  std::vector<float> kept();
  void into_norms();

  Device device_;
  at::Tensor a_, b_;                 // [products, n, n]
  std::vector<at::Tensor> as_, bs_;  // the single matrices
  EpochLog log_;
  at::Tensor product_;                    // [n, n]
  at::Tensor norms_;                      // [products]
  std::vector<at::Tensor> single_norms_;  // its elements
  std::unique_ptr<DeviceGraph> graph_;
};

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

// Returns uniform numbers from -1 to 1, generated on the device by a separate generator, which leaves the
// process-wide random state unchanged. The same seed gives the same numbers on the same kind of device.
at::Tensor noise(const std::vector<std::int64_t>& shape, at::TensorOptions options, std::uint64_t seed);

}  // namespace kindling
