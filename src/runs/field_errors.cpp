#include "runs/field_errors.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>
#include <string>

#include "kindling/base/error.h"
#include "kindling/formats/npy.h"
#include "runs/run_files.h"

namespace kindling {
namespace {

constexpr std::size_t kMaxFieldBytes = std::size_t{1} << 30;
constexpr std::size_t kMostFieldChannels = 20, kMostFieldMaps = 4, kMostFieldCells = 512;

// The root mean square of the cells of a block; NaN if all are missing.
float block_mean(std::span<const float> values, std::size_t width, std::size_t num_rows,
                 std::size_t num_columns) {
  double sum = 0;
  std::size_t count = 0;
  for (std::size_t row = 0; row < num_rows; ++row)
    for (std::size_t column = 0; column < num_columns; ++column)
      if (const double value = values[row * width + column]; !std::isnan(value)) {
        sum += value * value;
        ++count;
      }
  return count == 0 ? std::numeric_limits<float>::quiet_NaN()
                    : static_cast<float>(std::sqrt(sum / static_cast<double>(count)));
}

HeatMap map_of(std::span<const float> values, std::size_t height, std::size_t width) {
  const auto stride_of = [](std::size_t size) { return (size + kMostFieldCells - 1) / kMostFieldCells; };
  const std::size_t rows = stride_of(height), columns = stride_of(width);
  HeatMap map{.height = (height + rows - 1) / rows,
              .width = (width + columns - 1) / columns,
              .low = std::nan(""),
              .high = std::nan("")};
  map.values.reserve(map.height * map.width);
  for (std::size_t row = 0; row < height; row += rows)
    for (std::size_t column = 0; column < width; column += columns) {
      const float value = block_mean(values.subspan(row * width + column), width,
                                     std::min(rows, height - row), std::min(columns, width - column));
      map.values.push_back(value);
      if (!std::isfinite(value)) continue;
      map.low = std::fmin(map.low, value);
      map.high = std::fmax(map.high, value);
    }
  return map;
}

ChannelErrors errors_of_channel(std::span<const float> values, std::size_t height, std::size_t width) {
  ChannelErrors errors{.height = height, .width = width, .lowest = std::nan(""), .highest = std::nan("")};
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double value = values[i];
    if (std::isnan(value)) {
      ++errors.num_missing;
    } else if (std::isinf(value)) {
      ++errors.num_infinite;
    } else {
      errors.lowest = std::fmin(errors.lowest, value);
      if (value <= errors.highest) continue;
      errors.highest = value;
      errors.highest_row = i / width;
      errors.highest_column = i % width;
    }
  }
  return errors;
}

}  // namespace

FieldErrors read_field_errors(const std::filesystem::path& file) try {
  const auto bytes = small_file(file, kMaxFieldBytes);
  if (!bytes) return {};
  const NpyArray array = parse_npy(*bytes, file.string());
  if (array.type != TensorType::float32 || array.shape.size() != 3 || array.is_column_major ||
      array.bytes.empty())
    return {};
  const auto height = static_cast<std::size_t>(array.shape[1]),
             width = static_cast<std::size_t>(array.shape[2]);
  FieldErrors errors{.num_channels = static_cast<std::size_t>(array.shape[0])};
  std::vector<float> values(height * width);
  for (std::size_t i = 0; i < std::min(errors.num_channels, kMostFieldChannels); ++i) {
    std::memcpy(values.data(), array.bytes.data() + i * values.size() * sizeof(float),
                values.size() * sizeof(float));
    errors.channels.push_back(errors_of_channel(values, height, width));
    if (i < kMostFieldMaps) errors.channels.back().map = map_of(values, height, width);
  }
  return errors;
} catch (const Error&) {
  return {};
}

}  // namespace kindling
