#pragma once

#include "protocol.h"

namespace kindling_bench {

// Counts the batches of a shuffled epoch over 60,000 images: of floats, then, as a peer with _uint8 in its
// name, of bytes that are converted to floats per batch.
void data_feed(const Options& options);

}  // namespace kindling_bench
