#include "kindling/device/device_table.h"

#include <ATen/DeviceAccelerator.h>

#include "device/cuda_order.h"
#include "device/nvml.h"
#include "kindling/base/error.h"

namespace kindling {
namespace {

// What LibTorch reports about the GPUs that it can use.
std::vector<GpuInfo> gpus_of_libtorch() {
  std::vector<GpuInfo> cards;
  for (std::int64_t i = 0; i < num_gpus(); ++i) {
    GpuInfo card{.index = i, .device = gpu(i)};
    try {
      const auto [free, total] = at::accelerator::getMemoryInfo(static_cast<c10::DeviceIndex>(i));
      card.memory_used_bytes = static_cast<std::int64_t>(total - free);
      card.memory_total_bytes = static_cast<std::int64_t>(total);
    } catch (const c10::Error&) {
      // This accelerator does not report it, or the GPU is lost: keep the row.
    }
    cards.push_back(std::move(card));
  }
  return cards;
}

}  // namespace

DeviceTable device_table() {
  DeviceTable table;
  table.host = host_info();
  const std::int64_t num_usable = num_gpus();  // before NVML: starts the driver where LibTorch has CUDA
  const auto accelerator = at::accelerator::getAccelerator();
  if (accelerator && *accelerator != c10::DeviceType::CUDA) {
    table.cards = gpus_of_libtorch();
    return table;
  }
  try {
    const Nvml nvml;
    table.driver_version = nvml.driver_version();
    table.cuda_version = nvml.cuda_version();
    table.cards = nvml.cards();
    assign_ordinals(table.cards, num_usable);
    if (table.cards.empty()) table.note = "no GPU can be used: the NVIDIA driver reports none";
  } catch (const DeviceError& error) {
    table.cards = gpus_of_libtorch();
    table.note = num_usable > 0
                     ? "the GPUs cannot be read: NVML: " + error.parts().found
                     : "no GPU can be used: " + gpu_unavailable_reason() + "; NVML: " + error.parts().found;
  }
  return table;
}

}  // namespace kindling
