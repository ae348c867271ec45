#include "distributed/packed_texts.h"

#include <cstdint>
#include <cstring>

#include "kindling/base/error.h"

namespace kindling {

std::string packed(const std::vector<std::string>& texts) {
  std::string bytes;
  for (const std::string& text : texts) {
    const std::uint64_t size = text.size();
    bytes.append(reinterpret_cast<const char*>(&size), sizeof(size));
    bytes += text;
  }
  return bytes;
}

std::vector<std::string> unpacked(const std::string& bytes) {
  std::vector<std::string> texts;
  for (std::size_t at = 0; at < bytes.size();) {
    std::uint64_t size = 0;
    const bool has_size = bytes.size() - at >= sizeof(size);
    if (has_size) std::memcpy(&size, bytes.data() + at, sizeof(size));
    at += sizeof(size);
    if (!has_size || size > bytes.size() - at)
      throw DistributedError({.place = "message from another rank",
                              .found = "it is truncated",
                              .wanted = "a message of this version of Kindling"});
    texts.emplace_back(bytes, at, size);
    at += size;
  }
  return texts;
}

}  // namespace kindling
