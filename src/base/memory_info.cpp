#include "base/memory_info.h"

#include <fstream>
#include <string>

namespace kindling {

// Lines such as "MemTotal:  24689764 kB".
std::optional<std::size_t> memory_info_bytes(std::string_view row) {
  std::ifstream lines("/proc/meminfo");
  constexpr std::size_t kKilobyte = 1024;
  const std::string wanted = std::string(row) + ":";
  for (std::string key; lines >> key; lines.ignore(1000, '\n'))
    if (std::size_t kilobytes = 0; key == wanted && lines >> kilobytes) return kilobytes * kKilobyte;
  return std::nullopt;
}

}  // namespace kindling
