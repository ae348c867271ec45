#include "kindling/device/host_info.h"

#include <ATen/Parallel.h>

#include <fstream>
#include <string_view>
#include <thread>

#include "base/memory_info.h"

namespace kindling {
namespace {

// The text after the colon of the first line that starts with `key`.
std::string value_of(const char* file, const std::string& key) {
  std::ifstream stream(file);
  for (std::string line; std::getline(stream, line);) {
    const auto colon = line.find(':');
    if (!line.starts_with(key) || colon == std::string::npos) continue;
    const auto start = line.find_first_not_of(" \t", colon + 1);
    return start == std::string::npos ? "" : line.substr(start);
  }
  return "";
}

std::int64_t memory_bytes(std::string_view row) {
  return static_cast<std::int64_t>(memory_info_bytes(row).value_or(0));
}

}  // namespace

HostInfo host_info() {
  return {.cpu_model = value_of("/proc/cpuinfo", "model name"),
          .num_cores = static_cast<std::int64_t>(std::thread::hardware_concurrency()),
          .num_threads = at::get_num_threads(),
          .memory_total_bytes = memory_bytes("MemTotal"),
          .memory_available_bytes = memory_bytes("MemAvailable")};
}

}  // namespace kindling
