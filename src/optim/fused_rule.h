#pragma once

#include "kindling/optim/optimizer.h"

namespace kindling {

// Whether it is Adam, AdamW or Sgd itself, whose update is LibTorch's fused operator and nothing on the host:
// the same work in every step. Not what derives from them, which may count there.
bool is_fused_rule(const Optimizer& optimizer);

}  // namespace kindling
