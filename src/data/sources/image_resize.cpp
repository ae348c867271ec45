#include "data/sources/image_resize.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <span>
#include <vector>

namespace kindling {
namespace {

constexpr int kWeightBits = 22;  // of fixed-point weights: 255 · 2^22 and the rounding fit into 32 bits

// The pixels of one axis of an image that make up each pixel of the result.
struct WeightedRanges {
  struct Range {
    std::int64_t first = 0;            // pixel
    std::size_t begin = 0, count = 0;  // in `weights`
  };
  std::vector<Range> ranges{};
  std::vector<std::int32_t> weights{};  // sum of a range: 2^kWeightBits, apart from rounding

  std::span<const std::int32_t> weights_of(const Range& range) const {
    return std::span(weights).subspan(range.begin, range.count);
  }
};

WeightedRanges ranges_of_axis(std::int64_t in, std::int64_t out) {
  const double scale = static_cast<double>(in) / static_cast<double>(out), reach = std::max(scale, 1.0);
  WeightedRanges axis;
  axis.ranges.reserve(static_cast<std::size_t>(out));
  std::vector<double> weights;
  for (std::int64_t i = 0; i < out; ++i) {
    const double center = (static_cast<double>(i) + 0.5) * scale;
    const std::int64_t first = std::max<std::int64_t>(static_cast<std::int64_t>(center - reach + 0.5), 0);
    const std::int64_t end = std::min(static_cast<std::int64_t>(center + reach + 0.5), in);
    weights.clear();
    double sum = 0;
    for (std::int64_t pixel = first; pixel < end; ++pixel) {
      const double distance = std::abs((static_cast<double>(pixel) - center + 0.5) * (1 / reach));
      weights.push_back(distance < 1 ? 1 - distance : 0);
      sum += weights.back();
    }
    axis.ranges.push_back({.first = first, .begin = axis.weights.size(), .count = weights.size()});
    for (const double weight : weights)
      axis.weights.push_back(static_cast<std::int32_t>(0.5 + weight / sum * (1 << kWeightBits)));
  }
  return axis;
}

constexpr std::int32_t kHalf = 1 << (kWeightBits - 1);

std::uint8_t rounded(std::int32_t sum) {
  return static_cast<std::uint8_t>(std::clamp(sum >> kWeightBits, 0, 255));
}

Image blank_image(std::int64_t height, std::int64_t width, std::int64_t channels) {
  Image image;
  image.width = width;
  image.height = height;
  image.channels = channels;
  image.pixels.resize(static_cast<std::size_t>(width * height * channels));
  return image;
}

// Resizes a row of pixels with `channels` values each.
template <int channels>
void resize_row(const std::uint8_t* from, const WeightedRanges& axis, std::uint8_t* to) {
  for (const WeightedRanges::Range& range : axis.ranges) {
    std::array<std::int32_t, channels> sums{};
    sums.fill(kHalf);
    const std::uint8_t* value = from + range.first * channels;
    for (const std::int32_t weight : axis.weights_of(range))
      for (std::int32_t& sum : sums) sum += weight * *value++;
    for (const std::int32_t sum : sums) *to++ = rounded(sum);
  }
}

Image with_width(const Image& image, std::int64_t width) {
  Image result = blank_image(image.height, width, image.channels);
  const WeightedRanges axis = ranges_of_axis(image.width, width);
  const auto resize = image.channels == 3 ? resize_row<3> : resize_row<1>;
  for (std::int64_t y = 0; y < image.height; ++y)
    resize(image.pixels.data() + y * image.width * image.channels, axis,
           result.pixels.data() + y * width * image.channels);
  return result;
}

Image with_height(const Image& image, std::int64_t height) {
  Image result = blank_image(height, image.width, image.channels);
  const std::int64_t row = image.width * image.channels;
  const WeightedRanges axis = ranges_of_axis(image.height, height);
  std::vector<std::int32_t> sums(static_cast<std::size_t>(row));
  std::uint8_t* to = result.pixels.data();
  for (const WeightedRanges::Range& range : axis.ranges) {
    std::ranges::fill(sums, kHalf);
    const std::uint8_t* value = image.pixels.data() + range.first * row;
    for (const std::int32_t weight : axis.weights_of(range))
      for (std::int32_t& sum : sums) sum += weight * *value++;
    for (const std::int32_t sum : sums) *to++ = rounded(sum);
  }
  return result;
}

}  // namespace

Image resized_image(const Image& image, std::int64_t height, std::int64_t width) {
  if (image.width == width) return image.height == height ? image : with_height(image, height);
  const Image wide = with_width(image, width);
  return wide.height == height ? wide : with_height(wide, height);
}

}  // namespace kindling
