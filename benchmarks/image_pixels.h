#pragma once

#include "protocol.h"

namespace kindling_bench {

// Decodes the files whose paths come on standard input, one a line, and writes a line for each: its height,
// width and channels, and after the line its pixels; or "error" and the text of the error. No time is
// measured.
void image_pixels(const Options& options);

}  // namespace kindling_bench
