#pragma once

#include <cstdint>

namespace kindling {

// As TORCH_ABI_VERSION packs it: major, minor and patch in the three highest bytes.
std::uint64_t loaded_libtorch_version() noexcept;

// Throws Error unless `loaded` has the major and minor version that Kindling was built with: across them
// LibTorch's classes change their layout, and what follows would be a crash far from its cause.
void require_matching_libtorch(std::uint64_t loaded = loaded_libtorch_version());

}  // namespace kindling
