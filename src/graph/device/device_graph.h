#pragma once

#include <c10/core/DeviceType.h>

#include <functional>
#include <memory>
#include <string>

#include "kindling/base/export.h"
#include "kindling/device/device.h"

namespace kindling {

// Device work that is captured once and launched as a whole, by one call of the host.
class KINDLING_API DeviceGraph {
 public:
  virtual ~DeviceGraph() = default;
  // Captures the work that `work` queues on the device's current stream, which must not be the default one;
  // nothing is executed. Throws what `work` throws, and c10::Error if something cannot be captured; the
  // device state is then unchanged. Call it once.
  void record(const std::function<void()>& work);
  // Queues everything on the device's current stream; does not wait. The memory that the work reads and
  // writes must still exist at the same addresses; memory that it allocates belongs to the graph.
  virtual void replay() = 0;

 private:
  virtual void begin() = 0;
  virtual void end() = 0;
  virtual void abandon() noexcept = 0;  // ends a capture that may have failed
};

// Returns nullptr if the device has no graphs (see why_no_graph()).
KINDLING_API std::unique_ptr<DeviceGraph> make_device_graph(Device device);
// Captures `work`, after running it once on the same stream: libraries create their handles and buffers then,
// which they must not do during a capture. Returns nullptr if the device has no graphs.
KINDLING_API std::unique_ptr<DeviceGraph> record_work(Device device, const std::function<void()>& work);

// Returns why the device has no graphs ("the CPU has no device graphs"); empty if it has.
KINDLING_API std::string why_no_graph(Device device);

// Return nullptr if this program, or its LibTorch, does not support them.
std::unique_ptr<DeviceGraph> make_cuda_graph();
std::unique_ptr<DeviceGraph> make_accelerator_graph(c10::DeviceType type);

}  // namespace kindling
