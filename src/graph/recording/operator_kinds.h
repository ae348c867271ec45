#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <cstddef>
#include <span>
#include <string>

namespace kindling {

// Whether an operator makes memory and writes nothing into it.
bool only_makes_memory(const c10::OperatorHandle& op);
// Whether its results are its arguments, seen otherwise.
bool is_view(const c10::OperatorHandle& op);
// Whether it writes to an argument; what its schema does not tell is known here.
bool writes_to(const c10::OperatorHandle& op, std::size_t argument);
// Whether it does so without reading what is there.
bool overwrites(const c10::OperatorHandle& op, std::size_t argument);
// Why work that calls it cannot be recorded; empty: nothing speaks against it.
std::string why_not_recordable(const c10::OperatorHandle& op, std::span<const c10::IValue> arguments);

}  // namespace kindling
