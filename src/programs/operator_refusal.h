#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

namespace kindling {

// Whether a call only looks at what a tensor is, not at its values: nothing of it is recorded.
bool asks_for_layout(const c10::OperatorHandle& op, const torch::jit::Stack& stack);
// Throws NoProgram for an operator that a program cannot hold: its result depends on values that the host
// reads, or it is none of PyTorch's own.
void require_program_operator(const c10::OperatorHandle& op, const torch::jit::Stack& stack);

}  // namespace kindling
