#pragma once

#include <string_view>
#include <unordered_set>

namespace kindling {

// The operators that a program from a file may call, all of them aten's, without their overloads: "conv2d".
// Nothing else of it is ever run.
const std::unordered_set<std::string_view>& listed_operators();

}  // namespace kindling
