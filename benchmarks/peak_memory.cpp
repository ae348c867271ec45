#include "peak_memory.h"

#include <kindling/base/error.h>

#include <fstream>
#include <string>

namespace kindling_bench {
namespace {

std::int64_t status_bytes(const std::string& name) {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with(name + ":")) return std::stoll(line.substr(name.size() + 1)) * 1024;
  throw kindling::Error({.place = "/proc/self/status", .found = "it has no " + name});
}

void forget_former_peak() {
  std::ofstream file("/proc/self/clear_refs");
  if (!(file << "5" << std::flush))
    throw kindling::Error({.place = "/proc/self/clear_refs",
                           .found = "cannot write the file",
                           .wanted = "a Linux kernel that reports peak memory"});
}

}  // namespace

PeakMemory::PeakMemory() {
  forget_former_peak();
  start_bytes_ = status_bytes("VmRSS");
}

double PeakMemory::bytes() const { return static_cast<double>(status_bytes("VmHWM") - start_bytes_); }

}  // namespace kindling_bench
