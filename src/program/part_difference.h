#pragma once

#include <string>
#include <vector>

#include "kindling/base/text.h"

namespace kindling {

// What the comparison of one part of two runs has found.
struct PartDifference {
  std::string part{};  // "config", "metrics", "step 20", "weights"
  bool is_equal = true;
  std::string summary{};  // a line: "equal, 47 keys"
  std::vector<TextColumn> columns{};
  std::vector<std::vector<std::string>> rows{};  // what differs; empty: the summary has said it
};

// "1 key", "2 keys"
inline std::string counted(std::size_t count, const std::string& thing) {
  return std::to_string(count) + " " + thing + (count == 1 ? "" : "s");
}

}  // namespace kindling
