#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <memory>
#include <vector>

#include "graph/device/device_graph.h"
#include "kindling/metrics/epoch_log.h"
#include "measurements/measurements.h"

namespace kindling {

// Products of two n×n matrices of float32, whose Frobenius norms the host wants.
class LoggedProducts {
 public:
  enum class Way {
    one_at_a_time,  // the host reads each norm as soon as its product is started: a wait for each
    kept,           // in an EpochLog, which comes to the host once
    preallocated,   // into memory that is there; as one recorded graph where the device has graphs
    batched,        // all products by one operator, all norms by another
  };
  static constexpr std::array<Way, 4> kWays{Way::one_at_a_time, Way::kept, Way::preallocated, Way::batched};

  LoggedProducts(Device device, const LoggedProductsOptions& options);

  // The norms, in order, on the host. What it moves and how often it waits is counted in transfer_counts().
  std::vector<float> run(Way way);
  bool has_graph() const noexcept { return graph_ != nullptr; }

 private:
  std::vector<float> one_at_a_time();
  std::vector<float> kept();
  void into_norms();

  Device device_;
  at::Tensor a_, b_;                 // [products, n, n]
  std::vector<at::Tensor> as_, bs_;  // their matrices
  EpochLog log_;
  at::Tensor product_;                    // [n, n]
  at::Tensor norms_;                      // [products]
  std::vector<at::Tensor> single_norms_;  // its elements
  std::unique_ptr<DeviceGraph> graph_;
};

}  // namespace kindling
