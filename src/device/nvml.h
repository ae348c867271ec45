#pragma once

#include <dlfcn.h>

#include <string>
#include <vector>

#include "kindling/device/device_table.h"

namespace kindling {

inline constexpr const char* kNvmlLibrary = "libnvidia-ml.so.1";

// NVIDIA's management library, opened at run time and closed by the destructor. It reads GPUs without using
// them. Not thread-safe.
class Nvml {
 public:
  // Throws DeviceError if the library cannot be opened or initialised (no driver, another version of it, …).
  explicit Nvml(const std::string& library = kNvmlLibrary);
  ~Nvml();
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  std::string driver_version() const;  // empty: cannot be read
  std::string cuda_version() const;
  // In PCI bus order, without `device` and `why_not_usable`. Skips GPUs that this process may not open.
  std::vector<GpuInfo> cards() const;

 private:
  using Handle = struct NvmlDevice*;

  // Calls the function of that name and returns its result (0 is success). The types of the arguments must
  // match its declaration.
  template <class... Arguments>
  int call(const char* function, Arguments... arguments) const {
    constexpr int kFunctionNotFound = 13;
    using Function = int (*)(Arguments...);
    const auto address = reinterpret_cast<Function>(::dlsym(library_, function));
    return address == nullptr ? kFunctionNotFound : address(arguments...);
  }
  template <class... Arguments>
  std::string text(const char* function, Arguments... arguments) const;
  GpuInfo card(Handle handle) const;
  void read_memory(Handle handle, GpuInfo& card) const;
  // Adds the processes that one of the functions reports; returns false if it is not supported.
  bool add_processes(const char* function, Handle handle, std::vector<ProcessInfo>& processes) const;

  void* library_;
};

}  // namespace kindling
