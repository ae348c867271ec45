#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "graph/recording.h"
#include "graph/replay_node.h"

namespace kindling {

// A node that gives the bits of an operator by a loop of our own, for those whose preparations cost more than
// their work where tensors are small; nullptr where there is none. `results` are where they go.
std::unique_ptr<ReplayNode> fast_node(const c10::OperatorHandle& op, const torch::jit::Stack& arguments,
                                      const std::vector<at::Tensor>& results);

}  // namespace kindling
