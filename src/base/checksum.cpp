#include "kindling/base/checksum.h"

#define XXH_INLINE_ALL  // avoids symbols of a library that a program may link too
#include <xxhash.h>

namespace kindling {

struct Checksum::State {
  XXH3_state_t xxh3;
};

Checksum::Checksum() : state_(std::make_unique<State>()) { XXH3_64bits_reset(&state_->xxh3); }

Checksum::~Checksum() = default;

void Checksum::update(const void* bytes, std::size_t size) {
  if (size > 0) XXH3_64bits_update(&state_->xxh3, bytes, size);
}

std::uint64_t Checksum::value() const { return XXH3_64bits_digest(&state_->xxh3); }

std::string Checksum::hex() const {
  std::string digits(16, '0');
  std::uint64_t rest = value();
  for (std::size_t i = digits.size(); i-- > 0; rest >>= 4) digits[i] = "0123456789abcdef"[rest & 0xf];
  return digits;
}

}  // namespace kindling
