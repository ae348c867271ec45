#pragma once

#include "protocol.h"

namespace kindling_bench {

// Reads the table --variant (a CSV or JSON lines file in --folder) into a float tensor of its numbers and
// int32 codes of its categories.
void table_feed(const Options& options);

}  // namespace kindling_bench
