#include "graph/device/side_stream.h"

#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>

namespace kindling {
namespace {

void let_wait(c10::Stream later, c10::Stream earlier) {
  c10::Event done(earlier.device_type());
  done.record(earlier);
  done.block(later);
}

}  // namespace

c10::Stream new_side_stream(Device device) {
  return c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device, /*isHighPriority=*/false);
}

SideStream::SideStream(c10::Stream side) : on_side_(side) { let_wait(side, on_side_.original_stream()); }

SideStream::~SideStream() {
  try {
    let_wait(on_side_.original_stream(), on_side_.current_stream());
  } catch (const c10::Error&) {
    // The device has failed; every further call reports that too.
  }
}

}  // namespace kindling
