#include "charts/heat_map.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>

#include "formats/images/image_codecs.h"

namespace kindling {
namespace {

using Rgb = std::array<int, 3>;

// Matplotlib's viridis at every eighth of the scale; between them the colors are interpolated, as CSS does.
constexpr std::array<Rgb, 9> kScale{{{68, 1, 84},
                                     {71, 45, 123},
                                     {59, 82, 139},
                                     {44, 114, 142},
                                     {33, 145, 140},
                                     {40, 174, 128},
                                     {94, 201, 98},
                                     {173, 220, 48},
                                     {253, 231, 37}}};
constexpr Rgb kMissing{176, 176, 176}, kInfinite{220, 20, 60};
constexpr std::size_t kPaletteSize = 256, kNumShades = 254;
constexpr std::uint8_t kMissingIndex = 254, kInfiniteIndex = 255;

std::vector<std::uint8_t> heat_palette() {
  std::vector<std::uint8_t> palette;
  palette.reserve(3 * kPaletteSize);
  for (std::size_t i = 0; i < kNumShades; ++i) {
    const double place = static_cast<double>(i) / (kNumShades - 1) * (kScale.size() - 1);
    const std::size_t below = std::min(static_cast<std::size_t>(place), kScale.size() - 2);
    for (std::size_t k = 0; k < 3; ++k)
      palette.push_back(static_cast<std::uint8_t>(std::lround(
          std::lerp(kScale[below][k], kScale[below + 1][k], place - static_cast<double>(below)))));
  }
  for (const Rgb& color : {kMissing, kInfinite})
    for (const int part : color) palette.push_back(static_cast<std::uint8_t>(part));
  return palette;
}

}  // namespace

std::string heat_map_png(const HeatMap& map) {
  Image image{.width = static_cast<std::int64_t>(map.width),
              .height = static_cast<std::int64_t>(map.height),
              .channels = 1,
              .pixels = {}};
  image.pixels.reserve(map.values.size());
  const double range = map.high - map.low;
  for (const float value : map.values) {
    const double place = range > 0 ? std::clamp((value - map.low) / range, 0.0, 1.0) : 0;
    image.pixels.push_back(std::isnan(value) ? kMissingIndex
                           : std::isinf(value)
                               ? kInfiniteIndex
                               : static_cast<std::uint8_t>(std::lround(place * (kNumShades - 1))));
  }
  return encode_png(image, "a picture of the report", heat_palette());
}

std::string heat_map_gradient() {
  std::string text = "linear-gradient(to right";
  for (const Rgb& color : kScale)
    text += ",rgb(" + std::to_string(color[0]) + " " + std::to_string(color[1]) + " " +
            std::to_string(color[2]) + ")";
  return text + ")";
}

}  // namespace kindling
