#pragma once

#include <c10/core/DeviceType.h>

#include <functional>
#include <memory>
#include <string>

#include "kindling/base/export.h"
#include "kindling/device/device.h"

namespace kindling {

// Work of a device that has been recorded once and is started again as a whole, by one call of the host.
class KINDLING_API DeviceGraph {
 public:
  virtual ~DeviceGraph() = default;
  // Records what `work` gives to the device's current stream, which must not be the default one; nothing of
  // it is done. Throws what `work` throws, and c10::Error where something cannot be recorded: it is then as
  // if nothing had been. Once.
  void record(const std::function<void()>& work);
  // Queues everything on the device's current stream; does not wait. What the work reads and writes must
  // still be where it was; memory that it has taken stays the graph's.
  virtual void replay() = 0;

 private:
  virtual void begin() = 0;
  virtual void end() = 0;
  virtual void abandon() noexcept = 0;  // ends what may have failed
};

// nullptr where the device has no graphs (see why_no_graph).
KINDLING_API std::unique_ptr<DeviceGraph> make_device_graph(Device device);
// Of `work`, which is done once before on the stream that it is recorded on: libraries make their handles and
// buffers then, which they may not while they are recorded. nullptr where the device has no graphs.
KINDLING_API std::unique_ptr<DeviceGraph> record_work(Device device, const std::function<void()>& work);

// Empty where there are graphs, else why not: "the CPU has none", ….
KINDLING_API std::string why_no_graph(Device device);

// nullptr: this program, or its LibTorch, has none.
std::unique_ptr<DeviceGraph> make_cuda_graph();
std::unique_ptr<DeviceGraph> make_accelerator_graph(c10::DeviceType type);

}  // namespace kindling
