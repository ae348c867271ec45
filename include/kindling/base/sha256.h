#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "kindling/base/export.h"

namespace kindling {

// SHA-256 (FIPS 180-4), for comparing files with published sums.
class KINDLING_API Sha256 {
 public:
  void update(const void* bytes, std::size_t size);
  void update(std::string_view bytes) { update(bytes.data(), bytes.size()); }
  std::string hex() const;  // of all bytes so far, as 64 lower-case hex digits

 private:
  void add_block(const std::uint8_t* block);

  std::array<std::uint32_t, 8> state_{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                      0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<std::uint8_t, 64> rest_{};  // bytes that do not yet fill a block
  std::uint64_t num_bytes_ = 0;
};

}  // namespace kindling
