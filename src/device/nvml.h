#pragma once

#include <dlfcn.h>

#include <string>
#include <vector>

#include "kindling/device/device_table.h"

namespace kindling {

inline constexpr const char* kNvmlLibrary = "libnvidia-ml.so.1";

// NVIDIA's management library, opened at run time and closed with the object. It reads cards without using
// them. Not thread-safe.
class Nvml {
 public:
  // Throws DeviceError: the library cannot be opened, or does not start (no driver, another version of it,
  // …).
  explicit Nvml(const std::string& library = kNvmlLibrary);
  ~Nvml();
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  std::string driver_version() const;  // empty: cannot be read
  std::string cuda_version() const;
  // In the order of the PCI bus, without `device` and `why_not_usable`. Cards that this process may not open
  // are left out.
  std::vector<GpuInfo> cards() const;

 private:
  using Handle = struct NvmlDevice*;

  // The result of the function of that name (0 is success). The types of the arguments must be those of its
  // declaration.
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
  // Adds the processes that one of the functions knows; false: it cannot tell.
  bool add_processes(const char* function, Handle handle, std::vector<ProcessInfo>& processes) const;

  void* library_;
};

}  // namespace kindling
