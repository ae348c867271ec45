#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

namespace kindling {

// The bytes of a zip archive as PyTorch writes it: stored entries, whose bytes begin at multiples of 64, and
// ends of both sizes.
class ZipWriter {
 public:
  // `bytes` are borrowed until the archive is written.
  void add(std::string_view name, std::string_view bytes);
  // All of the archive, one after the other; nothing can be added any more. They live as long as this does.
  std::vector<std::string_view> finish();

 private:
  void append(std::string bytes);

  std::deque<std::string> owned_bytes_;  // of which pieces_ has views
  std::vector<std::string_view> pieces_;
  std::string directory_;
  std::uint64_t reached_ = 0, entries_ = 0;
};

}  // namespace kindling
