#pragma once

#include <cstdint>

namespace kindling {

// The output function of SplitMix64 (Steele, Lea, Flood, 2014): a bijection of 64-bit numbers, the same on
// every machine.
inline std::uint64_t mixed_bits(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

}  // namespace kindling
