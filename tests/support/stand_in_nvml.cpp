// A stand-in for NVIDIA's management library with two GPUs and the functions that Kindling calls.
// KINDLING_STAND_IN_NVML selects a scenario: "" (two busy GPUs), "idle" (no processes), "busy" (100 processes
// on each), "silent" (only names can be read), "old" (an older driver with the first version of the memory
// struct), "no_cards", "no_driver".
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>

#include "kindling/base/export.h"

namespace {

constexpr int kSuccess = 0, kInvalidArgument = 2, kNotSupported = 3, kNotFound = 6, kInsufficientSize = 7,
              kDriverNotLoaded = 9;
constexpr unsigned long long kValueNotAvailable = ~0ULL;

struct StandInCard {
  const char *name, *uuid, *bus_id;
  unsigned long long total, used;
  unsigned temperature, power_mw, power_limit_mw, utilization;
};
constexpr StandInCard kCards[] = {
    {"NVIDIA H200", "GPU-1111aaaa-0000-4000-8000-000000000001", "00000000:18:00.0", 150'323'855'360,
     75'161'927'680, 41, 512'300, 700'000, 97},
    {"NVIDIA RTX 6000 Ada Generation", "GPU-1111bbbb-0000-4000-8000-000000000002", "00000000:3B:00.0",
     51'539'607'552, 536'870'912, 33, 28'000, 300'000, 0}};

bool is_situation(const char* name) {
  const char* set = std::getenv("KINDLING_STAND_IN_NVML");
  return std::string(set == nullptr ? "" : set) == name;
}

const StandInCard& card_of(void* handle) { return *static_cast<const StandInCard*>(handle); }

int give(char* out, unsigned size, const char* text) {
  if (std::strlen(text) >= size) return kInsufficientSize;
  std::strcpy(out, text);
  return kSuccess;
}

int give(unsigned* out, unsigned value) {
  if (is_situation("silent")) return kNotSupported;
  *out = value;
  return kSuccess;
}

struct Memory {
  unsigned long long total, free, used;
};
struct MemoryV2 {
  unsigned version;
  unsigned long long total, reserved, free, used;
};
struct PciInfo {
  char bus_id_legacy[16];
  unsigned domain, bus, device, pci_device_id, pci_subsystem_id;
  char bus_id[32];
};
struct Utilization {
  unsigned gpu, memory;
};
struct Process {
  unsigned pid;
  unsigned long long used_memory;
  unsigned gpu_instance_id, compute_instance_id;
};

}  // namespace

extern "C" {

KINDLING_API int nvmlInit_v2() { return is_situation("no_driver") ? kDriverNotLoaded : kSuccess; }
KINDLING_API int nvmlShutdown() { return kSuccess; }
KINDLING_API const char* nvmlErrorString(int code) {
  return code == kDriverNotLoaded ? "Driver Not Loaded" : "Unknown Error";
}
KINDLING_API int nvmlSystemGetDriverVersion(char* out, unsigned size) { return give(out, size, "580.95.05"); }
KINDLING_API int nvmlSystemGetCudaDriverVersion_v2(int* version) {
  *version = 13000;
  return kSuccess;
}
KINDLING_API int nvmlSystemGetProcessName(unsigned pid, char* out, unsigned size) {
  if (pid == 4242) return kNotFound;  // of another container
  return give(out, size, pid == 31337 ? "/usr/bin/kindling\xff" : "python3");
}

KINDLING_API int nvmlDeviceGetCount_v2(unsigned* count) {
  *count = is_situation("no_cards") ? 0 : 2;
  return kSuccess;
}
KINDLING_API int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** handle) {
  if (index >= 2) return kInvalidArgument;
  *handle = const_cast<StandInCard*>(&kCards[index]);
  return kSuccess;
}
KINDLING_API int nvmlDeviceGetName(void* handle, char* out, unsigned size) {
  return give(out, size, card_of(handle).name);
}
KINDLING_API int nvmlDeviceGetUUID(void* handle, char* out, unsigned size) {
  return give(out, size, card_of(handle).uuid);
}
KINDLING_API int nvmlDeviceGetPciInfo_v3(void* handle, PciInfo* info) {
  return give(info->bus_id, sizeof info->bus_id, card_of(handle).bus_id);
}
KINDLING_API int nvmlDeviceGetMemoryInfo_v2(void* handle, MemoryV2* memory) {
  if (memory->version != (sizeof(MemoryV2) | 2U << 24)) return kInvalidArgument;
  if (is_situation("silent") || is_situation("old")) return kNotSupported;
  const StandInCard& card = card_of(handle);
  *memory = {memory->version, card.total, 0, card.total - card.used, card.used};
  return kSuccess;
}
KINDLING_API int nvmlDeviceGetMemoryInfo(void* handle, Memory* memory) {
  if (is_situation("silent")) return kNotSupported;
  const StandInCard& card = card_of(handle);
  *memory = {card.total, card.total - card.used, card.used};
  return kSuccess;
}
KINDLING_API int nvmlDeviceGetTemperature(void* handle, int, unsigned* value) {
  return give(value, card_of(handle).temperature);
}
KINDLING_API int nvmlDeviceGetPowerUsage(void* handle, unsigned* value) {
  return give(value, card_of(handle).power_mw);
}
KINDLING_API int nvmlDeviceGetEnforcedPowerLimit(void* handle, unsigned* value) {
  return give(value, card_of(handle).power_limit_mw);
}
KINDLING_API int nvmlDeviceGetUtilizationRates(void* handle, Utilization* rates) {
  return give(&rates->gpu, card_of(handle).utilization);
}
KINDLING_API int nvmlDeviceGetComputeRunningProcesses_v3(void* handle, unsigned* count, Process* processes) {
  if (is_situation("silent")) return kNotSupported;
  const bool is_first = &card_of(handle) == kCards;
  const unsigned running = is_situation("busy") ? 100 : is_situation("idle") || !is_first ? 0 : 2;
  const unsigned room = *count;
  *count = running;
  if (room < running) return kInsufficientSize;
  for (unsigned i = 0; i < running; ++i) processes[i] = {1000 + i, 1 << 20, ~0U, ~0U};
  if (running == 2) {
    processes[0] = {31337, 74'625'056'768, ~0U, ~0U};
    processes[1] = {4242, kValueNotAvailable, ~0U, ~0U};
  }
  return kSuccess;
}
// Includes one that also computes.
KINDLING_API int nvmlDeviceGetGraphicsRunningProcesses_v3(void* handle, unsigned* count, Process* processes) {
  if (is_situation("silent")) return kNotSupported;
  const bool draws = is_situation("") && &card_of(handle) == kCards;
  if (draws) processes[0] = {4242, kValueNotAvailable, ~0U, ~0U};
  *count = draws ? 1 : 0;
  return kSuccess;
}
}
