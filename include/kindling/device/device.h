#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <string>
#include <vector>

#include "kindling/base/export.h"

namespace kindling {

// LibTorch's device: a type and an index.
using Device = c10::Device;

// Returns the CPU: all cores, all memory.
KINDLING_API Device cpu();

// Returns the index-th GPU of the accelerator that this LibTorch supports (`cuda` if it supports none). gpu()
// equals gpu(0). Naming a GPU that does not exist is not an error until it is used. Throws DeviceError for a
// negative index.
KINDLING_API Device gpu(std::int64_t index = 0);

// Returns how many GPUs can be used now; 0 without a driver. Never throws.
KINDLING_API std::int64_t num_gpus() noexcept;
// Returns true if the machine seems to have a GPU that this LibTorch can use. Starts no driver, so a process
// may still fork; num_gpus() is exact.
KINDLING_API bool has_gpu() noexcept;

// Returns gpu(index) if it exists, else cpu(). Throws DeviceError for a negative index.
KINDLING_API Device try_gpu(std::int64_t index = 0);

// Returns every GPU, or {cpu()} if there are none.
KINDLING_API std::vector<Device> try_all_gpus();

// Returns the first min(wanted, num_gpus()) GPUs; all of them for wanted = -1; empty if there are none.
// Throws DeviceError for wanted < -1.
KINDLING_API std::vector<Device> first_gpus(std::int64_t wanted);

// Returns why num_gpus() is not larger, in one clause: "this LibTorch is a CPU build", "hidden by
// CUDA_VISIBLE_DEVICES", ….
KINDLING_API std::string gpu_unavailable_reason();
[[deprecated("use gpu_unavailable_reason()")]] inline std::string why_no_more_gpus() {
  return gpu_unavailable_reason();
}

}  // namespace kindling
