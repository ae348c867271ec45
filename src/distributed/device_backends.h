#pragma once

#include <c10/core/DeviceType.h>

#include <chrono>
#include <functional>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

namespace kindling {

// One process among those that make collectives together.
struct BackendPlace {
  c10::intrusive_ptr<c10d::Store> store;  // for this kind of device alone
  int rank, size;
  std::chrono::milliseconds timeout;
};

// Makes the collectives of tensors on a kind of device. That of CUDA is there from the beginning where
// Kindling was built with NCCL; waiting for its work keeps the current stream waiting, not the host.
using DeviceBackendFactory = std::function<c10::intrusive_ptr<c10d::Backend>(const BackendPlace&)>;

// For good; from any thread. A second one for the same kind replaces the first.
void register_device_backend(at::DeviceType type, DeviceBackendFactory factory);
// Throws DistributedError where there is none for this kind of device.
c10::intrusive_ptr<c10d::Backend> make_device_backend(at::DeviceType type, const BackendPlace& place);

}  // namespace kindling
