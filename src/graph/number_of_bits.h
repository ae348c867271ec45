#pragma once

#include <bit>
#include <cstdint>

namespace kindling::fast {

// What loops for float32 and for the bits of bfloat16 compare.
inline float number(float x) { return x; }
inline float number(std::uint16_t x) { return std::bit_cast<float>(std::uint32_t{x} << 16); }

}  // namespace kindling::fast
