#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>

#include <memory>
#include <vector>

#include "graph/nodes/replay_node.h"

// The entry point of graph/kernels: other modules include only this header.
namespace kindling {

// TrainerOptions::step_kernels.
enum class NativeKernels { automatic, off };

// Returns a node that computes an operator's results, bit-identical, without calling the operator: by a
// native loop or by a direct call of LibTorch's BLAS. Exists for CPU operators whose dispatch costs more
// than their work on small tensors, and for those that LibTorch computes one number at a time. Returns
// nullptr for all others. `results`: the tensors that the node writes. The caller compares the first
// results with the operator's.
std::unique_ptr<ReplayNode> native_kernel(const c10::OperatorHandle& op, const torch::jit::Stack& arguments,
                                          const std::vector<at::Tensor>& results);

}  // namespace kindling
