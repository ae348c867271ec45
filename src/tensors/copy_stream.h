#pragma once

#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include "kindling/device/device.h"
#include "kindling/tensors/batch.h"

namespace kindling {

// Copies batches to a card on a stream of its own: beside what is computed there, not behind it. What the
// card computes with a batch waits for its copy, on the card; the host waits for nothing.
class CopyStream {
 public:
  explicit CopyStream(Device device);

  // The tensors of the host on the card, as soon as the card's current stream needs them. Others are moved on
  // the current stream, which may still be making them.
  Batch move(Batch batch);

 private:
  Device device_;
  c10::Stream stream_;
  c10::Event copied_;
};

}  // namespace kindling
