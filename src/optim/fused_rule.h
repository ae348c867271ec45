#pragma once

#include "kindling/optim/optimizer.h"

namespace kindling {

// True for Adam, AdamW and Sgd themselves, whose update is LibTorch's fused operator without host state: the
// same work in every step. False for derived classes, which may have host state, and with master weights,
// which may have to follow their parameters.
bool is_fused_rule(const Optimizer& optimizer);

}  // namespace kindling
