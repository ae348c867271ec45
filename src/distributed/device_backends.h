#pragma once

#include <c10/core/DeviceType.h>

#include <chrono>
#include <functional>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

namespace kindling {

// One rank of a backend.
struct BackendPlace {
  c10::intrusive_ptr<c10d::Store> store;  // for this device type only
  int rank, size;
  std::chrono::milliseconds timeout;
};

// Creates the backend for tensors on a device type. The one for CUDA is registered by default if Kindling was
// built with NCCL; waiting for its work makes the current stream wait, not the host.
using DeviceBackendFactory = std::function<c10::intrusive_ptr<c10d::Backend>(const BackendPlace&)>;

// Registers a backend permanently; from any thread. A second one for the same type replaces the first.
void register_device_backend(at::DeviceType type, DeviceBackendFactory factory);
// Throws DistributedError if there is none for this device type.
c10::intrusive_ptr<c10d::Backend> make_device_backend(at::DeviceType type, const BackendPlace& place);

}  // namespace kindling
