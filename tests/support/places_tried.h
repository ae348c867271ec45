// The number of positions for tests that try every position.
#pragma once

#include <cstddef>

namespace kindling {

// Every position; with a sanitizer, which is several times slower and checks memory and threads rather than
// results, every fifth.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr std::size_t kPlaceStride = 5;
#else
inline constexpr std::size_t kPlaceStride = 1;
#endif

}  // namespace kindling
