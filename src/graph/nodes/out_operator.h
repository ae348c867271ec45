#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <optional>

namespace kindling {

// Returns the overload of an operator that writes the same results into given tensors (its last arguments)
// and has a dedicated CPU kernel; nothing if there is none.
std::optional<c10::OperatorHandle> out_operator(const c10::OperatorHandle& op);

}  // namespace kindling
