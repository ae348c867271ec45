#pragma once

#include <cstdint>

namespace kindling {

// The version in the format of TORCH_ABI_VERSION: major, minor and patch in the three highest bytes.
std::uint64_t loaded_libtorch_version() noexcept;

// Throws Error unless `loaded` has the major and minor version that Kindling was built with: LibTorch's
// classes change their layout between minor versions, which would cause crashes far from their cause.
void require_matching_libtorch(std::uint64_t loaded = loaded_libtorch_version());

}  // namespace kindling
