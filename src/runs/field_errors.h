#pragma once

#include <cstddef>
#include <filesystem>
#include <vector>

#include "charts/heat_map.h"

namespace kindling {

// The errors of a channel in field_errors.npy: the root of the mean squared error of each cell.
struct ChannelErrors {
  std::size_t height = 0, width = 0;
  std::size_t num_missing = 0, num_infinite = 0;  // cells
  double lowest = 0, highest = 0;                 // of the finite ones; NaN without any
  std::size_t highest_row = 0, highest_column = 0;
  // Of at most 512 x 512 cells: each is the root mean square of a block of cells, without the missing ones.
  HeatMap map{};  // only of the first channels
};

// The errors of a model of fields.
struct FieldErrors {
  std::size_t num_channels = 0;
  std::vector<ChannelErrors> channels{};  // at most 20 of them, at most 4 with a map
};

// Reads the file. Returns no channels if it is missing, larger than 1 GiB or not float32 [channels, height,
// width].
FieldErrors read_field_errors(const std::filesystem::path& file);

}  // namespace kindling
