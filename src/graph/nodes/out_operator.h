#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <optional>

namespace kindling {

// The overload of an operator that writes the same results into given tensors, the last arguments, by a
// kernel of the CPU's own; nothing where there is none.
std::optional<c10::OperatorHandle> out_operator(const c10::OperatorHandle& op);

}  // namespace kindling
