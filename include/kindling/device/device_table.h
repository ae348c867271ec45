#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "kindling/base/export.h"
#include "kindling/device/device.h"
#include "kindling/device/host_info.h"

namespace kindling {

// A process that uses a card.
struct ProcessInfo {
  std::int64_t pid = 0;                        // as the host of the driver counts, also inside a container
  std::optional<std::string> name{};           // its command
  std::optional<std::int64_t> memory_bytes{};  // of the card
};

// A card of the machine. What cannot be read is absent.
struct CardInfo {
  std::int64_t index = 0;             // as nvidia-smi counts
  std::optional<Device> device{};     // as LibTorch counts; absent when it cannot be used
  std::string why_not_usable{};       // a clause; empty: `device` can be used
  std::optional<std::string> name{};  // "NVIDIA H200"
  std::string uuid{};                 // "GPU-…", as CUDA_VISIBLE_DEVICES may name it
  std::string pci_bus_id{};           // "00000000:3B:00.0"
  std::optional<std::int64_t> memory_used_bytes{}, memory_total_bytes{};
  std::optional<std::int64_t> temperature_celsius{};
  std::optional<double> power_watts{}, power_limit_watts{};
  std::optional<std::int64_t> utilization_percent{};  // share of the last moments in which a kernel ran
  std::optional<std::vector<ProcessInfo>> processes{};
};

// What device_table() finds.
struct DeviceTable {
  std::string driver_version{};  // "580.95.05"; empty: unknown
  std::string cuda_version{};    // the newest that the driver can run, "13.0"; empty: unknown
  std::vector<CardInfo> cards{};
  HostInfo host{};     // the CPU
  std::string note{};  // why there are no cards or no readings, one line; empty: there are
};

// The cards and the CPU, now. CUDA's cards are read through NVIDIA's management library (NVML), which is
// opened for the call: also those that LibTorch cannot use. Any other accelerator is listed with what
// LibTorch knows. Never throws for a card or library that is missing.
//
// `device` is as the CUDA driver counts, which is asked for the PCI addresses of its cards:
// CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER change its order.
KINDLING_API DeviceTable device_table();

}  // namespace kindling
