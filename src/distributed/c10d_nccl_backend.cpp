// Collectives of CUDA tensors. Compiled if LibTorch has CUDA and nccl.h is found.
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

#include "distributed/device_backends.h"

namespace kindling {
namespace {

c10::intrusive_ptr<c10d::Backend> make_nccl(const BackendPlace& place) {
  auto options = c10d::ProcessGroupNCCL::Options::create();
  options->timeout = place.timeout;
  return c10::make_intrusive<c10d::ProcessGroupNCCL>(place.store, place.rank, place.size, std::move(options));
}

[[maybe_unused]] const bool is_registered = (register_device_backend(at::kCUDA, make_nccl), true);

}  // namespace
}  // namespace kindling
