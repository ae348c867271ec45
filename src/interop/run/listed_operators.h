#pragma once

#include <string_view>
#include <unordered_set>

namespace kindling {

// Returns the ATen operators that a program from a file may call, without overloads: "conv2d". A program with
// others is never run.
const std::unordered_set<std::string_view>& listed_operators();

}  // namespace kindling
