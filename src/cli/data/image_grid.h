#pragma once

#include "cli/data/image_samples.h"
#include "kindling/formats/image.h"

namespace kindling {

// Pixels between the images of a grid.
inline constexpr std::int64_t kGridGap = 2;

// Returns all samples in one image, up to 8 in a row, on white: in cells of the size of the largest image,
// the transformed ones below the others.
Image image_grid(const ImageSamples& samples);

}  // namespace kindling
