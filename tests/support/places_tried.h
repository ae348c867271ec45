// How many places tests try that try all of them.
#pragma once

#include <cstddef>

namespace kindling {

// Each one; under a sanitizer, which makes them several times as slow and looks at memory and threads rather
// than results, each fifth.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr std::size_t kPlaceStride = 5;
#else
inline constexpr std::size_t kPlaceStride = 1;
#endif

}  // namespace kindling
