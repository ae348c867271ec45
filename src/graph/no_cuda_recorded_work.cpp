#include "graph/recorded_work.h"

namespace kindling {

std::unique_ptr<RecordedWork> record_work(Device, const std::function<void()>&) { return nullptr; }

std::string why_no_graph(Device device) {
  if (device.is_cpu()) return "the CPU has none";
  return "this program was built without CUDA's headers (the CUDA toolkit), so " + device.str() + " has none";
}

}  // namespace kindling
