#pragma once

#include <cstdint>
#include <optional>

namespace kindling {

// How often this thread has called operator new since it began, in LibTorch's libraries and the standard one
// too; what comes from malloc alone, such as the data of tensors, is not part of it. Nothing in a program of
// the sanitizers, which have an operator new of their own.
std::optional<std::int64_t> num_allocations();

}  // namespace kindling
