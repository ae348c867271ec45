#include "device/nvml.h"

#include <algorithm>
#include <array>

#include "kindling/base/error.h"

namespace kindling {
namespace {

// The results, structs and constants of nvml.h that are used here, with its layouts.
constexpr int kNvmlSuccess = 0;
constexpr int kNvmlInsufficientSize = 7;
constexpr int kNvmlGpuTemperature = 0;
constexpr unsigned long long kNvmlValueNotAvailable = ~0ULL;

struct NvmlMemory {
  unsigned long long total, free, used;
};
struct NvmlMemoryV2 {
  unsigned version;
  unsigned long long total, reserved, free, used;
};
struct NvmlPciInfo {
  char bus_id_legacy[16];
  unsigned domain, bus, device, pci_device_id, pci_subsystem_id;
  char bus_id[32];
};
struct NvmlUtilization {
  unsigned gpu, memory;
};
struct NvmlProcess {
  unsigned pid;
  unsigned long long used_memory;
  unsigned gpu_instance_id, compute_instance_id;
};

}  // namespace

Nvml::Nvml(const std::string& library) : library_(::dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL)) {
  if (library_ == nullptr) {
    const char* reason = ::dlerror();
    throw DeviceError(
        {.place = "NVML",
         .found = std::string("it cannot be opened (") + (reason == nullptr ? library : reason) + ")",
         .wanted = "NVIDIA's management library",
         .remedy = "install the NVIDIA driver"});
  }
  if (const int code = call("nvmlInit_v2"); code != kNvmlSuccess) {
    using ErrorString = const char* (*)(int);
    const auto error_string = reinterpret_cast<ErrorString>(::dlsym(library_, "nvmlErrorString"));
    const std::string reason = error_string == nullptr ? "error " + std::to_string(code) : error_string(code);
    ::dlclose(library_);
    throw DeviceError({.place = "NVML", .found = "it does not start (" + reason + ")"});
  }
}

Nvml::~Nvml() {
  call("nvmlShutdown");
  ::dlclose(library_);
}

// Calls functions that end with a buffer and its size.
template <class... Arguments>
std::string Nvml::text(const char* function, Arguments... arguments) const {
  std::array<char, 512> buffer{};
  const int code = call(function, arguments..., buffer.data(), static_cast<unsigned>(buffer.size() - 1));
  return code == kNvmlSuccess ? buffer.data() : "";
}

std::string Nvml::driver_version() const { return text("nvmlSystemGetDriverVersion"); }

std::string Nvml::cuda_version() const {
  int version = 0;  // 12080 for 12.8
  if (call("nvmlSystemGetCudaDriverVersion_v2", &version) != kNvmlSuccess) return "";
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

std::vector<GpuInfo> Nvml::cards() const {
  unsigned count = 0;
  call("nvmlDeviceGetCount_v2", &count);
  std::vector<GpuInfo> cards;
  for (unsigned i = 0; i < count; ++i) {
    Handle handle = nullptr;
    if (call("nvmlDeviceGetHandleByIndex_v2", i, &handle) != kNvmlSuccess) continue;
    cards.push_back(card(handle));
    cards.back().index = i;
  }
  return cards;
}

GpuInfo Nvml::card(Handle handle) const {
  GpuInfo card;
  if (std::string name = text("nvmlDeviceGetName", handle); !name.empty()) card.name = std::move(name);
  card.uuid = text("nvmlDeviceGetUUID", handle);
  NvmlPciInfo pci{};
  if (call("nvmlDeviceGetPciInfo_v3", handle, &pci) == kNvmlSuccess) card.pci_bus_id = pci.bus_id;
  read_memory(handle, card);
  unsigned value = 0;
  if (call("nvmlDeviceGetTemperature", handle, kNvmlGpuTemperature, &value) == kNvmlSuccess)
    card.temperature_celsius = value;
  if (call("nvmlDeviceGetPowerUsage", handle, &value) == kNvmlSuccess) card.power_watts = value / 1000.0;
  if (call("nvmlDeviceGetEnforcedPowerLimit", handle, &value) == kNvmlSuccess)
    card.power_limit_watts = value / 1000.0;
  NvmlUtilization utilization{};
  if (call("nvmlDeviceGetUtilizationRates", handle, &utilization) == kNvmlSuccess)
    card.utilization_percent = utilization.gpu;
  std::vector<ProcessInfo> processes;
  const bool has_compute = add_processes("nvmlDeviceGetComputeRunningProcesses_v3", handle, processes);
  const bool has_graphics = add_processes("nvmlDeviceGetGraphicsRunningProcesses_v3", handle, processes);
  if (has_compute || has_graphics) card.processes = std::move(processes);
  return card;
}

// The second version excludes the memory that the driver reserves for itself, as nvidia-smi does.
void Nvml::read_memory(Handle handle, GpuInfo& card) const {
  NvmlMemoryV2 memory{};
  memory.version = sizeof(NvmlMemoryV2) | 2U << 24;
  NvmlMemory older{};
  if (call("nvmlDeviceGetMemoryInfo_v2", handle, &memory) == kNvmlSuccess)
    older = {memory.total, memory.free, memory.used};
  else if (call("nvmlDeviceGetMemoryInfo", handle, &older) != kNvmlSuccess)
    return;
  card.memory_used_bytes = static_cast<std::int64_t>(older.used);
  card.memory_total_bytes = static_cast<std::int64_t>(older.total);
}

bool Nvml::add_processes(const char* function, Handle handle, std::vector<ProcessInfo>& processes) const {
  std::vector<NvmlProcess> found(32);
  auto count = static_cast<unsigned>(found.size());
  int code;
  while ((code = call(function, handle, &count, found.data())) == kNvmlInsufficientSize &&
         found.size() < 1'000'000) {
    found.resize(2 * found.size() + count);  // more may appear meanwhile
    count = static_cast<unsigned>(found.size());
  }
  if (code != kNvmlSuccess) return false;
  found.resize(std::min<std::size_t>(count, found.size()));
  for (const NvmlProcess& process : found) {
    if (std::ranges::find(processes, process.pid, &ProcessInfo::pid) != processes.end()) continue;
    ProcessInfo info{.pid = process.pid};
    if (std::string name = text("nvmlSystemGetProcessName", process.pid); !name.empty())
      info.name = std::move(name);
    if (process.used_memory != kNvmlValueNotAvailable)
      info.memory_bytes = static_cast<std::int64_t>(process.used_memory);
    processes.push_back(std::move(info));
  }
  return true;
}

}  // namespace kindling
