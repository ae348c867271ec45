#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "kindling/base/export.h"

namespace kindling {

// Numbers on a grid, to be drawn as a picture with a pixel each.
struct HeatMap {
  std::size_t height = 0, width = 0;
  std::vector<float> values{};  // [height, width], the first row at the top
  double low = 0, high = 0;     // the ends of the color scale; NaN: the map has no finite number
};

// Returns a PNG file: dark blue for `low` to yellow for `high`, grey for NaN, red for infinities. The colors
// can be told apart without red and green. Throws Error if Kindling was built without libpng
// (can_read_png()).
KINDLING_API std::string heat_map_png(const HeatMap& map);

// Returns the color scale as a CSS value, `low` at the left.
std::string heat_map_gradient();

}  // namespace kindling
