#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kindling/device/device_table.h"

namespace kindling {

// For each card, the number under which CUDA counts it in this process; nullopt: hidden from it.
using CudaOrder = std::vector<std::optional<std::int64_t>>;

// As the CUDA driver itself counts; nullopt when this process has not started it (it is not started here).
std::optional<CudaOrder> cuda_order_of_driver(std::span<const CardInfo> cards,
                                              const char* library = "libcuda.so.1");

// As `visible`, the text of CUDA_VISIBLE_DEVICES (nullptr: not set), says for cards in the order of the PCI
// bus: a list of numbers and of beginnings of UUIDs. What is no card ends the list ("-1" is the usual way);
// naming a card twice hides all.
CudaOrder cuda_order_of_list(std::span<const CardInfo> cards, const char* visible);

}  // namespace kindling
