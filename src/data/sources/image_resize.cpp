#include "data/sources/image_resize.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace kindling {
namespace {

constexpr int kWeightBits = 22;  // of fixed-point weights: 255 · 2^22 and the rounding fit into 32 bits

// The pixels of one axis of an image that make up a pixel of the result.
struct WeightedRange {
  std::int64_t first = 0;
  std::vector<std::int32_t> weights{};  // sum: 2^kWeightBits, apart from rounding
};

WeightedRange range_around(double center, double width, std::int64_t in) {
  WeightedRange range;
  range.first = std::max<std::int64_t>(static_cast<std::int64_t>(center - width + 0.5), 0);
  const std::int64_t end = std::min(static_cast<std::int64_t>(center + width + 0.5), in);
  std::vector<double> weights;
  double sum = 0;
  for (std::int64_t i = range.first; i < end; ++i) {
    const double distance = std::abs((static_cast<double>(i) - center + 0.5) * (1 / width));
    weights.push_back(distance < 1 ? 1 - distance : 0);
    sum += weights.back();
  }
  for (const double weight : weights)
    range.weights.push_back(static_cast<std::int32_t>(0.5 + weight / sum * (1 << kWeightBits)));
  return range;
}

std::vector<WeightedRange> ranges_of_axis(std::int64_t in, std::int64_t out) {
  const double scale = static_cast<double>(in) / static_cast<double>(out);
  std::vector<WeightedRange> ranges;
  for (std::int64_t i = 0; i < out; ++i)
    ranges.push_back(range_around((static_cast<double>(i) + 0.5) * scale, std::max(scale, 1.0), in));
  return ranges;
}

// Adds `size` values, `step` values apart for neighbours along the axis, weighted.
void weighted_values(const std::uint8_t* from, std::int64_t step, const WeightedRange& range,
                     std::int64_t size, std::uint8_t* to) {
  for (std::int64_t j = 0; j < size; ++j) {
    std::int32_t sum = 1 << (kWeightBits - 1);
    const std::uint8_t* value = from + range.first * step + j;
    for (const std::int32_t weight : range.weights) {
      sum += weight * *value;
      value += step;
    }
    to[j] = static_cast<std::uint8_t>(std::clamp(sum >> kWeightBits, 0, 255));
  }
}

Image blank_image(std::int64_t height, std::int64_t width, std::int64_t channels) {
  Image image;
  image.width = width;
  image.height = height;
  image.channels = channels;
  image.pixels.resize(static_cast<std::size_t>(width * height * channels));
  return image;
}

Image with_width(const Image& image, std::int64_t width) {
  Image result = blank_image(image.height, width, image.channels);
  const std::vector<WeightedRange> ranges = ranges_of_axis(image.width, width);
  for (std::int64_t y = 0; y < image.height; ++y)
    for (std::int64_t x = 0; x < width; ++x)
      weighted_values(image.pixels.data() + y * image.width * image.channels, image.channels,
                      ranges[static_cast<std::size_t>(x)], image.channels,
                      result.pixels.data() + (y * width + x) * image.channels);
  return result;
}

Image with_height(const Image& image, std::int64_t height) {
  Image result = blank_image(height, image.width, image.channels);
  const std::int64_t row = image.width * image.channels;
  const std::vector<WeightedRange> ranges = ranges_of_axis(image.height, height);
  for (std::int64_t y = 0; y < height; ++y)
    weighted_values(image.pixels.data(), row, ranges[static_cast<std::size_t>(y)], row,
                    result.pixels.data() + y * row);
  return result;
}

}  // namespace

Image resized_image(const Image& image, std::int64_t height, std::int64_t width) {
  if (image.width == width) return image.height == height ? image : with_height(image, height);
  const Image wide = with_width(image, width);
  return wide.height == height ? wide : with_height(wide, height);
}

}  // namespace kindling
