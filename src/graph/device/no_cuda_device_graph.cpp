#include "graph/device/device_graph.h"

namespace kindling {

std::unique_ptr<DeviceGraph> make_cuda_graph() { return nullptr; }

}  // namespace kindling
