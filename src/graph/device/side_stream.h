#pragma once

#include <c10/core/Stream.h>
#include <c10/core/StreamGuard.h>

#include "kindling/device/device.h"

namespace kindling {

// Returns a stream that is not the device's default stream, which cannot be captured.
c10::Stream new_side_stream(Device device);

// While it exists, this thread queues its work on `side`, which first waits for the thread's own stream;
// afterwards that stream waits for `side`. The host waits for neither.
class SideStream {
 public:
  explicit SideStream(c10::Stream side);
  ~SideStream();
  SideStream(const SideStream&) = delete;
  SideStream& operator=(const SideStream&) = delete;

 private:
  c10::StreamGuard on_side_;
};

}  // namespace kindling
