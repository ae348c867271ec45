#include "cli/data/image_grid.h"

#include <algorithm>
#include <cstddef>

namespace kindling {
namespace {

constexpr std::int64_t kMostInGridRow = 8;
constexpr std::uint8_t kWhite = 255;

// Copies the image to a position in the grid.
void draw_image(Image& grid, const Image& image, std::int64_t top, std::int64_t left) {
  for (std::int64_t y = 0; y < image.height; ++y)
    for (std::int64_t x = 0; x < image.width; ++x)
      for (std::int64_t c = 0; c < grid.channels; ++c)
        grid.pixels[static_cast<std::size_t>(((top + y) * grid.width + left + x) * grid.channels + c)] =
            image.pixels[static_cast<std::size_t>((y * image.width + x) * image.channels +
                                                  (image.channels == 1 ? 0 : c))];
}

}  // namespace

Image image_grid(const ImageSamples& samples) {
  std::int64_t height = 0, width = 0, channels = 1;
  for (const std::vector<Image>* images : {&samples.before, &samples.after})
    for (const Image& image : *images) {
      height = std::max(height, image.height);
      width = std::max(width, image.width);
      channels = std::max(channels, image.channels);
    }
  const auto count = static_cast<std::int64_t>(samples.before.size());
  const std::int64_t per_row = std::min(count, kMostInGridRow), versions = samples.after.empty() ? 1 : 2;
  const std::int64_t rows = versions * ((count + per_row - 1) / per_row);
  Image grid{.width = per_row * (width + kGridGap) + kGridGap,
             .height = rows * (height + kGridGap) + kGridGap,
             .channels = channels,
             .pixels = {}};
  grid.pixels.assign(static_cast<std::size_t>(grid.width * grid.height * channels), kWhite);
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t top = kGridGap + versions * (i / per_row) * (height + kGridGap);
    const std::int64_t left = kGridGap + (i % per_row) * (width + kGridGap);
    const auto sample = static_cast<std::size_t>(i);
    draw_image(grid, samples.before[sample], top, left);
    if (versions == 2) draw_image(grid, samples.after[sample], top + height + kGridGap, left);
  }
  return grid;
}

}  // namespace kindling
