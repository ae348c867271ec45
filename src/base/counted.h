#pragma once

#include <concepts>
#include <string>
#include <string_view>

namespace kindling {

// Returns a number with its unit: "1 key", "2 keys".
std::string counted(std::integral auto count, std::string_view thing) {
  return std::to_string(count).append(" ").append(thing).append(count == 1 ? "" : "s");
}

}  // namespace kindling
