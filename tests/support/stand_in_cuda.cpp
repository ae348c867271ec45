// A stand-in for the CUDA driver that reports the order of its GPUs. KINDLING_STAND_IN_CUDA is the
// comma-separated list of their PCI bus ids; unset: the driver has not been started.
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <string>
#include <vector>

#include "kindling/base/export.h"

namespace {

constexpr int kSuccess = 0, kNotInitialized = 3, kInvalidDevice = 101;

std::vector<std::string> bus_ids() {
  std::vector<std::string> ids;
  const char* set = std::getenv("KINDLING_STAND_IN_CUDA");
  std::istringstream text(set == nullptr ? "" : set);
  for (std::string id; std::getline(text, id, ',');) ids.push_back(id);
  return ids;
}

}  // namespace

extern "C" {

KINDLING_API int cuDeviceGetCount(int* count) {
  *count = static_cast<int>(bus_ids().size());
  return std::getenv("KINDLING_STAND_IN_CUDA") == nullptr ? kNotInitialized : kSuccess;
}
KINDLING_API int cuDeviceGet(int* device, int ordinal) {
  *device = 70 + ordinal;  // a handle is not an ordinal
  return kSuccess;
}
KINDLING_API int cuDeviceGetPCIBusId(char* out, int size, int device) {
  const auto ids = bus_ids();
  const auto index = static_cast<std::size_t>(device - 70);
  if (index >= ids.size() || ids[index].size() >= static_cast<std::size_t>(size)) return kInvalidDevice;
  std::strcpy(out, ids[index].c_str());
  return kSuccess;
}
}
