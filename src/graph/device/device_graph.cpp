#include "graph/device/device_graph.h"

#include "graph/device/side_stream.h"

namespace kindling {

void DeviceGraph::record(const std::function<void()>& work) {
  begin();
  try {
    work();
  } catch (...) {
    abandon();
    throw;
  }
  try {
    end();
  } catch (...) {
    abandon();
    throw;
  }
}

std::unique_ptr<DeviceGraph> make_device_graph(Device device) {
  if (device.is_cpu()) return nullptr;
  if (device.is_cuda())
    if (auto graph = make_cuda_graph()) return graph;
  return make_accelerator_graph(device.type());
}

std::unique_ptr<DeviceGraph> record_work(Device device, const std::function<void()>& work) {
  auto graph = make_device_graph(device);
  if (!graph) return nullptr;
  const SideStream side(new_side_stream(device));
  work();
  graph->record(work);
  return graph;
}

std::string why_no_graph(Device device) {
  if (device.is_cpu()) return "the CPU has no device graphs";
  if (make_device_graph(device)) return "";
  if (!device.is_cuda()) return device.str() + " has no device graphs";
  return "this program was built without CUDA's headers (the CUDA toolkit), so " + device.str() +
         " has no device graphs";
}

}  // namespace kindling
