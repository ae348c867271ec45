#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

namespace kindling {

// Builds a zip archive like those of PyTorch: stored entries at multiples of 64 bytes, and end records of
// both kinds.
class ZipWriter {
 public:
  // `bytes` are borrowed until the archive is written.
  void add(std::string_view name, std::string_view bytes);
  // Returns the archive in consecutive pieces; nothing can be added afterwards. They are valid as long as
  // this exists.
  std::vector<std::string_view> finish();

 private:
  void append(std::string bytes);

  std::deque<std::string> owned_bytes_;  // of which pieces_ has views
  std::vector<std::string_view> pieces_;
  std::string directory_;
  std::uint64_t reached_ = 0, entries_ = 0;
};

}  // namespace kindling
