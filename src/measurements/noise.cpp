#include "measurements/noise.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/ops/empty.h>

namespace kindling {

at::Tensor noise(const std::vector<std::int64_t>& shape, at::TensorOptions options, std::uint64_t seed) {
  const Device device = options.device();
  at::Generator generator =
      device.is_cpu()
          ? at::detail::createCPUGenerator()
          : at::globalContext().getAcceleratorHooksInterface(device.type()).getNewGenerator(device.index());
  generator.set_current_seed(seed);
  return at::empty(shape, options).uniform_(-1, 1, generator);
}

}  // namespace kindling
