#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

#include <cstddef>
#include <span>
#include <string>

namespace kindling {

// True if an operator allocates memory and does not write to it.
bool only_makes_memory(const c10::OperatorHandle& op);
// True if its results are views of its arguments.
bool is_view(const c10::OperatorHandle& op);
// True if it writes to an argument, also where its schema does not say so.
bool writes_to(const c10::OperatorHandle& op, std::size_t argument);
// True if it writes to it without reading it first.
bool overwrites(const c10::OperatorHandle& op, std::size_t argument);
// Returns why work that calls it cannot be captured; empty if it can.
std::string why_not_recordable(const c10::OperatorHandle& op, std::span<const c10::IValue> arguments);

}  // namespace kindling
