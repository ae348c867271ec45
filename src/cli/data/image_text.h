#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/data/image_samples.h"
#include "kindling/formats/image.h"

namespace kindling {

// Returns the image as lines of half blocks, '▀', with a column per pixel and a line per two rows of pixels,
// in 24-bit colors: the foreground is the upper pixel, the background the lower one. Each line ends with a
// reset.
std::vector<std::string> half_block_lines(const Image& image);

// Returns the image with at most `max_width` columns: larger ones are averaged down, and small ones are
// enlarged by a whole number, up to 16 pixels.
Image fitted_image(const Image& image, std::int64_t max_width);

// Returns the samples next to each other in lines of at most `columns` columns, the transformed ones below.
std::string samples_text(const ImageSamples& samples, std::int64_t columns);

}  // namespace kindling
