#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "kindling/base/export.h"

namespace kindling {

// XXH3 with 64 bits (github.com/Cyan4973/xxHash). Detects damage, does not protect against tampering.
class KINDLING_API Checksum {
 public:
  Checksum();
  ~Checksum();
  Checksum(const Checksum&) = delete;
  Checksum& operator=(const Checksum&) = delete;

  void update(const void* bytes, std::size_t size);
  void update(std::string_view bytes) { update(bytes.data(), bytes.size()); }
  std::uint64_t value() const;  // of all bytes so far
  std::string hex() const;      // the same as 16 lower-case hex digits

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace kindling
