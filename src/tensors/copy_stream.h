#pragma once

#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include "kindling/device/device.h"
#include "kindling/tensors/batch.h"

namespace kindling {

// Copies batches to a GPU on a separate stream, concurrently with its computations. On the GPU, computations
// with a batch wait for its copy; the host does not wait.
class CopyStream {
 public:
  explicit CopyStream(Device device);

  // Moves host tensors to the GPU, ready when its current stream needs them. Other tensors are moved on the
  // current stream, which may still be computing them.
  Batch move(Batch batch);

 private:
  Device device_;
  c10::Stream stream_;
  c10::Event copied_;
};

}  // namespace kindling
