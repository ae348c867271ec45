#include "kindling/device/device.h"

#include <ATen/DeviceAccelerator.h>
#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <limits>

#include "kindling/base/error.h"

namespace kindling {
namespace {

c10::DeviceIndex checked_index(std::int64_t index) {
  if (index < 0 || index > std::numeric_limits<c10::DeviceIndex>::max())
    throw DeviceError(
        {.place = "gpu(" + std::to_string(index) + ")",
         .found = "the GPU index is out of range",
         .wanted = "a number from 0 to " + std::to_string(std::max<std::int64_t>(num_gpus() - 1, 0)),
         .remedy = "check num_gpus()"});
  return static_cast<c10::DeviceIndex>(index);
}

c10::DeviceType accelerator_type() {
  return at::accelerator::getAccelerator().value_or(c10::DeviceType::CUDA);
}

// True if the loaded LibTorch ships CUDA code in addition to its CPU library.
bool has_cuda_library() {
  Dl_info info{};
  const auto* symbol = reinterpret_cast<const void*>(&at::accelerator::deviceCount);
  if (dladdr(symbol, &info) == 0 || info.dli_fname == nullptr) return false;
  std::error_code ignored;
  return std::filesystem::exists(std::filesystem::path(info.dli_fname).parent_path() / "libtorch_cuda.so",
                                 ignored);
}

}  // namespace

Device cpu() { return {c10::DeviceType::CPU}; }

Device gpu(std::int64_t index) { return {accelerator_type(), checked_index(index)}; }

std::int64_t num_gpus() noexcept {
  try {
    return at::accelerator::getAccelerator() ? at::accelerator::deviceCount() : 0;
  } catch (...) {
    return 0;  // treat a driver that fails to start as missing
  }
}

bool has_gpu() noexcept {
  try {
    const auto accelerator = at::accelerator::getAccelerator();
    if (!accelerator) return false;
    if (*accelerator != c10::DeviceType::CUDA) return num_gpus() > 0;
    const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
    const bool is_hidden = visible != nullptr && (*visible == '\0' || *visible == '-');
    return !is_hidden && std::filesystem::exists("/dev/nvidia0");
  } catch (...) {
    return false;
  }
}

Device try_gpu(std::int64_t index) { return checked_index(index) < num_gpus() ? gpu(index) : cpu(); }

std::vector<Device> try_all_gpus() {
  auto devices = first_gpus(-1);
  if (devices.empty()) devices.push_back(cpu());
  return devices;
}

std::vector<Device> first_gpus(std::int64_t wanted) {
  if (wanted < -1)
    throw DeviceError({.place = "num_gpus = " + std::to_string(wanted),
                       .found = "a negative number of GPUs",
                       .wanted = "0 for the CPU, a number of GPUs, or -1 for all"});
  const std::int64_t count = wanted == -1 ? num_gpus() : std::min(wanted, num_gpus());
  std::vector<Device> devices;
  for (std::int64_t i = 0; i < count; ++i) devices.push_back(gpu(i));
  return devices;
}

std::string gpu_unavailable_reason() {
  if (num_gpus() > 0) return "only " + std::to_string(num_gpus()) + " are visible";
  if (!at::accelerator::getAccelerator())
    return has_cuda_library() ? "the program is not linked to LibTorch's torch_cuda"
                              : "this LibTorch is a CPU build";
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  if (visible != nullptr && (*visible == '\0' || *visible == '-'))
    return std::string("hidden by CUDA_VISIBLE_DEVICES=\"") + visible + "\"";
  std::error_code ignored;
  if (!std::filesystem::exists("/proc/driver/nvidia/version", ignored)) return "no NVIDIA driver is loaded";
  return "the driver reports no usable GPU";
}

}  // namespace kindling
