#pragma once

#include <c10/core/Stream.h>
#include <c10/core/StreamGuard.h>

#include "kindling/device/device.h"

namespace kindling {

// One that is not the device's default stream, which cannot be recorded.
c10::Stream new_side_stream(Device device);

// While it lives, this thread gives its work to `side`, which goes on where the thread's own stream is; that
// one then goes on where `side` is. The host waits for neither.
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
