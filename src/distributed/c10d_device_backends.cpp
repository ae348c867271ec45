#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "distributed/device_backends.h"
#include "kindling/base/error.h"

namespace kindling {
namespace {

struct DeviceBackends {
  std::mutex mutex;
  std::map<at::DeviceType, DeviceBackendFactory> factories;
};

// Made at first use: other files register theirs before main().
DeviceBackends& device_backends() {
  static DeviceBackends backends;
  return backends;
}

}  // namespace

void register_device_backend(at::DeviceType type, DeviceBackendFactory factory) {
  const std::lock_guard lock(device_backends().mutex);
  device_backends().factories.insert_or_assign(type, std::move(factory));
}

c10::intrusive_ptr<c10d::Backend> make_device_backend(at::DeviceType type, const BackendPlace& place) {
  DeviceBackendFactory factory;
  {
    const std::lock_guard lock(device_backends().mutex);
    factory = device_backends().factories[type];
  }
  if (factory) return factory(place);
  const bool is_cuda = type == at::kCUDA;
  throw DistributedError(
      {.place = "tensors on " + c10::DeviceTypeName(type, /*lower_case=*/true),
       .found = is_cuda ? "this build has no NCCL" : "no backend can sum them across ranks",
       .wanted = is_cuda ? "a CUDA build of LibTorch and nccl.h when Kindling is built" : "",
       .remedy = "or train on the CPU: num_gpus = 0"});
}

}  // namespace kindling
