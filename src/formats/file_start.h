#pragma once

#include <string>
#include <string_view>

namespace kindling {

// Returns what the first bytes of a file show it to be, if that is a well-known kind of file that contains no
// weights or contains them in a format that is not read; empty otherwise: "it is a Git LFS pointer, …".
struct KnownStart {
  std::string found{}, remedy{};
};
KnownStart known_start(std::string_view start);
// So many bytes suffice.
inline constexpr std::size_t kKnownStartBytes = 512;

}  // namespace kindling
