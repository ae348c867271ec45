#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace kindling {

// A number that goes with the batch size B: a·B + b.
struct BatchLine {
  std::int64_t a = 0, b = 0;
  auto operator<=>(const BatchLine&) const = default;
};

// The one through numbers at these batch sizes; nullopt: there is none. At least two of each, and three where
// the sizes differ: a line goes through any two points.
std::optional<BatchLine> line_through(const std::vector<std::int64_t>& numbers,
                                      const std::vector<std::int64_t>& batch_sizes);

inline constexpr const char* kBatchSymbol = "s0";
// As Python's SymPy reads it.
std::string expression_of(BatchLine line);

}  // namespace kindling
