#pragma once

#include "protocol.h"

namespace kindling_bench {

// One shuffled epoch over 60,000 images, whose batches are only counted: of floats, then, as another peer
// with _uint8 in its name, of bytes that become floats batch by batch.
void data_feed(const Options& options);

}  // namespace kindling_bench
