#include "device/cuda_order.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>

namespace kindling {
namespace {

// Domain, bus and device: NVML writes the domain with eight digits, CUDA with four.
using PciNumbers = std::array<unsigned, 3>;

PciNumbers pci_numbers(const char* bus_id) {
  PciNumbers numbers{};
  std::sscanf(bus_id, "%x:%x:%x", &numbers[0], &numbers[1], &numbers[2]);
  return numbers;
}

// Returns those of the driver's devices in order; none if the driver has not been initialised.
std::vector<PciNumbers> devices_of_driver(const char* path) {
  void* library = ::dlopen(path, RTLD_LAZY | RTLD_NOLOAD);
  if (library == nullptr) return {};
  const auto call = [&](const char* function, auto... arguments) {
    const auto address = reinterpret_cast<int (*)(decltype(arguments)...)>(::dlsym(library, function));
    return address != nullptr && address(arguments...) == 0;
  };
  int count = 0;
  if (!call("cuDeviceGetCount", &count)) count = 0;
  std::vector<PciNumbers> devices;
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    std::array<char, 32> id{};
    int device = 0;
    if (call("cuDeviceGet", &device, ordinal))
      call("cuDeviceGetPCIBusId", id.data(), static_cast<int>(id.size() - 1), device);
    devices.push_back(pci_numbers(id.data()));
  }
  ::dlclose(library);
  return devices;
}

std::string why_not_offered() {
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  return visible == nullptr ? "the CUDA driver does not offer it"
                            : std::string("hidden by CUDA_VISIBLE_DEVICES=\"") + visible + "\"";
}

}  // namespace

void assign_ordinals(std::vector<GpuInfo>& cards, std::int64_t num_usable, const char* library) {
  const auto devices = devices_of_driver(library);
  for (GpuInfo& card : cards) {
    // Uses the first one of several slices of a GPU.
    const auto found = std::ranges::find(devices, pci_numbers(card.pci_bus_id.c_str()));
    const auto ordinal = found - devices.begin();
    const bool is_offered = found != devices.end() && !card.pci_bus_id.empty();
    if (is_offered && ordinal < num_usable)
      card.device = Device(c10::DeviceType::CUDA, static_cast<c10::DeviceIndex>(ordinal));
    else
      card.why_not_usable = is_offered || num_usable == 0 ? gpu_unavailable_reason() : why_not_offered();
  }
}

}  // namespace kindling
