#pragma once

#include "protocol.h"

namespace kindling_bench {

// Decodes shuffled epochs of the image files in --folder, in batches of 64 of three channels, on --threads
// workers and without a model. --variant is the height and width to resize to; without it, the files keep
// their size. Prints the sum of all bytes of the first epoch, which is not counted, so that the driver can
// compare it with that of another program.
void image_feed(const Options& options);

}  // namespace kindling_bench
