#include "base/available_memory.h"

#include <fstream>
#include <string>

namespace kindling {

std::optional<std::size_t> available_memory_bytes() {
  std::ifstream lines("/proc/meminfo");
  constexpr std::size_t kKilobyte = 1024;
  for (std::string key; lines >> key; lines.ignore(1000, '\n'))
    if (std::size_t kilobytes = 0; key == "MemAvailable:" && lines >> kilobytes) return kilobytes * kKilobyte;
  return std::nullopt;
}

}  // namespace kindling
