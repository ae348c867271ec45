#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

namespace kindling {

// Returns the bytes of a row of /proc/meminfo: "MemTotal", or "MemAvailable", what the system can still hand
// out without swapping; nullopt: it does not say.
std::optional<std::size_t> memory_info_bytes(std::string_view row);

}  // namespace kindling
