#pragma once

#include "protocol.h"

namespace kindling_bench {

// step() of Adam, AdamW and SGD with momentum on fixed gradients of three sets of parameters; variants
// "adam/small32" and so on.
void optim_only(const Options& options);

}  // namespace kindling_bench
