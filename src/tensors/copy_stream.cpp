#include "tensors/copy_stream.h"

#include <ATen/DeviceAccelerator.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <utility>
#include <vector>

#include "kindling/tensors/move.h"

namespace kindling {

CopyStream::CopyStream(Device device)
    : device_(device),
      stream_(c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device)),
      copied_(device.type()) {}

Batch CopyStream::move(Batch batch) {
  const c10::Stream computes = at::accelerator::getCurrentStream(device_.index());
  std::vector<at::Tensor> moved;
  {
    // Allocated on the copying stream: computations on the other stream do not affect it.
    const c10::StreamGuard guard(stream_);
    for (std::size_t i = 0; i < batch.tensors().size(); ++i)
      if (batch.tensors()[i].is_cpu() && !batch.stays_on_host(i))
        moved.push_back(batch.tensors()[i] = move_to(batch.tensors()[i], device_));
    if (!moved.empty()) copied_.record(stream_);
  }
  if (!moved.empty()) copied_.block(computes);
  // Prevents reuse for another batch before the computing stream is done with it.
  for (const at::Tensor& tensor : moved)
    at::getDeviceAllocator(device_.type())->recordStream(tensor.storage().data_ptr(), computes);
  return move_to(std::move(batch), device_);
}

}  // namespace kindling
