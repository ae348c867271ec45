#pragma once

#include <string_view>

#include "kindling/formats/image.h"

namespace kindling {

// Returns the orientation 1 to 8 of an EXIF block, the content of a JPEG's APP1 segment; 1 if there is none
// or the block is damaged, as viewers do.
int exif_orientation(std::string_view segment);

// Returns the image upright: mirrored and rotated as the orientation 1 to 8 says.
Image upright(Image image, int orientation);

// True if upright() exchanges width and height.
inline bool exchanges_sides(int orientation) { return orientation >= 5; }

}  // namespace kindling
