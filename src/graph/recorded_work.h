#pragma once

#include <functional>
#include <memory>
#include <string>

#include "kindling/base/export.h"
#include "kindling/device/device.h"

namespace kindling {

// Work of a card that has been recorded once and is started again as a whole, by one call of the host.
class KINDLING_API RecordedWork {
 public:
  virtual ~RecordedWork() = default;
  // Queues everything on the device's current stream; does not wait.
  virtual void replay() = 0;
};

// Runs `work` once to warm up and once more to record it; nothing where the device has no graphs (see
// why_no_graph). What `work` reads and writes must stay where it is.
KINDLING_API std::unique_ptr<RecordedWork> record_work(Device device, const std::function<void()>& work);

// Empty where record_work records, else why not: "the CPU has none", ….
KINDLING_API std::string why_no_graph(Device device);

}  // namespace kindling
