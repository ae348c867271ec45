#pragma once

#include <cstdint>

#include "kindling/formats/image.h"

namespace kindling {

// Returns the image with another size. Each pixel is a mean, weighted by a triangle that covers two pixels of
// the result (or of the image, where it is enlarged). The numbers are those of PIL's resize(size, BILINEAR)
// with the horizontal pass first; PIL begins with the vertical one for some sizes, which rounds differently.
Image resized_image(const Image& image, std::int64_t height, std::int64_t width);

}  // namespace kindling
