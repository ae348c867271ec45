#pragma once

#include <ATen/core/Tensor.h>

#include "kindling/nn/module.h"

namespace kindling {

// Logs a warning if the graph of a loss uses a tensor of 16 bits so often that the sum of the gradients of
// all uses, which autograd adds up in the tensor's type, loses terms: a weight in each time step of a custom
// loop, for example. Returns whether it has. Calls no operator.
bool warn_of_repeated_uses(const at::Tensor& loss, const Module& model);

}  // namespace kindling
