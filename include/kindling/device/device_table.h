#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kindling/base/export.h"
#include "kindling/device/device.h"
#include "kindling/device/host_info.h"

namespace kindling {

// A process that uses a GPU.
struct ProcessInfo {
  std::int64_t pid = 0;               // in the PID namespace of the driver's host, also inside a container
  std::optional<std::string> name{};  // its command
  std::optional<std::int64_t> memory_bytes{};  // on the GPU
};

// A GPU of the machine. Values that cannot be read are absent.
struct GpuInfo {
  std::int64_t index = 0;             // in the numbering of nvidia-smi
  std::optional<Device> device{};     // in the numbering of LibTorch; absent if the GPU cannot be used
  std::string why_not_usable{};       // a clause; empty: `device` can be used
  std::optional<std::string> name{};  // "NVIDIA H200"
  std::string uuid{};                 // "GPU-…", the form that CUDA_VISIBLE_DEVICES accepts
  std::string pci_bus_id{};           // "00000000:3B:00.0"
  std::optional<std::int64_t> memory_used_bytes{}, memory_total_bytes{};
  std::optional<std::int64_t> temperature_celsius{};
  std::optional<double> power_watts{}, power_limit_watts{};
  // fraction of the last sampling period in which a kernel ran
  std::optional<std::int64_t> utilization_percent{};
  std::optional<std::vector<ProcessInfo>> processes{};
};

// The former name.
using CardInfo [[deprecated("use GpuInfo")]] = GpuInfo;

// The result of device_table().
struct DeviceTable {
  std::string driver_version{};  // "580.95.05"; empty: unknown
  std::string cuda_version{};    // the newest that the driver supports, "13.0"; empty: unknown
  std::vector<GpuInfo> cards{};
  HostInfo host{};     // the CPU
  std::string note{};  // why GPUs or their readings are missing, one line; empty otherwise
};

// Returns the GPUs and the CPU as they are now. NVIDIA GPUs are read through NVIDIA's management library
// (NVML), which is opened for the call, so GPUs that LibTorch cannot use are listed too. Any other
// accelerator is listed with what LibTorch reports. Never throws for a missing GPU or library.
//
// `device` uses the numbering of the CUDA driver, matched by the PCI addresses of its GPUs:
// CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER change that order.
KINDLING_API DeviceTable device_table();

}  // namespace kindling
