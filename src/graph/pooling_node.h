#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <memory>
#include <vector>

#include "graph/replay_node.h"

namespace kindling {

// aten::max_pool2d_with_indices of float32 and bfloat16 by a loop of our own; nullptr where that is not
// faster, or where tensors are neither plane by plane nor channels-last. `results`: values and indices.
std::unique_ptr<ReplayNode> max_pool_node(const c10::OperatorHandle& op, const torch::jit::Stack& arguments,
                                          const std::vector<at::Tensor>& results);
// aten::max_pool2d_with_indices_backward of bfloat16, where no number is in two windows; nullptr for others.
// That of float32 costs LibTorch no more than it has to.
std::unique_ptr<ReplayNode> max_pool_backward_node(const c10::OperatorHandle& op,
                                                   const torch::jit::Stack& arguments,
                                                   const std::vector<at::Tensor>& results);

}  // namespace kindling
