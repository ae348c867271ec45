#pragma once

#include "protocol.h"

namespace kindling_bench {

// Makes 50 batches (in order: 200) of 64 samples of the data sets x and y in --folder/fields.h5 on --threads
// workers.
// --variant: "sequential", "shuffled" or "chunks" (data.shuffle_chunks = 8).
void hdf5_feed(const Options& options);

}  // namespace kindling_bench
