#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>

#include <memory>

#include "graph/replay_node.h"

namespace kindling {

// aten::threshold_backward by a loop of our own, of float32 and bfloat16 images that lie channels-last while
// their gradient lies plane by plane, as it does before a layer that flattens them; nullptr for others.
// LibTorch goes number by number there.
std::unique_ptr<ReplayNode> relu_backward_node(const torch::jit::Stack& arguments, const at::Tensor& out);

}  // namespace kindling
