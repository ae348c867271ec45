#pragma once

#include <cstddef>
#include <optional>

namespace kindling {

// Returns the bytes of memory that the system can still hand out without swapping; nullopt: it does not say.
std::optional<std::size_t> available_memory_bytes();

}  // namespace kindling
