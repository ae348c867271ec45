#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <string>
#include <vector>

#include "kindling/base/export.h"

namespace kindling {

// LibTorch's own: a type and an index.
using Device = c10::Device;

// The CPU: all cores, all memory.
KINDLING_API Device cpu();

// The index-th card, on whichever accelerator this LibTorch knows (`cuda` when it knows none). gpu() equals
// gpu(0). Naming a card that does not exist is no error until it is used. Throws DeviceError for a negative
// index.
KINDLING_API Device gpu(std::int64_t index = 0);

// How many cards can be used now; 0 without a driver, never an exception.
KINDLING_API std::int64_t num_gpus() noexcept;

// gpu(index) if it exists, else cpu(). Throws DeviceError for a negative index.
KINDLING_API Device try_gpu(std::int64_t index = 0);

// Every card, or {cpu()} when there is none.
KINDLING_API std::vector<Device> try_all_gpus();

// The first min(wanted, num_gpus()) cards; all of them for wanted = -1; empty when there are none.
// Throws DeviceError for wanted < -1.
KINDLING_API std::vector<Device> first_gpus(std::int64_t wanted);

// Returns why num_gpus() is not larger, in one clause: "this LibTorch is a CPU build", "hidden by
// CUDA_VISIBLE_DEVICES", ….
KINDLING_API std::string gpu_unavailable_reason();
[[deprecated("use gpu_unavailable_reason()")]] inline std::string why_no_more_gpus() {
  return gpu_unavailable_reason();
}

}  // namespace kindling
