#pragma once

#include <string_view>

#include "kindling/formats/image.h"

// The orientation of images: how they are mirrored and rotated to be upright.
namespace kindling {

inline constexpr std::string_view kExifStart("Exif\0\0",
                                             6);  // of a block in JPEG, where it is optional elsewhere

// Returns the orientation 1 to 8 of an EXIF block; 1 if there is none or the block is damaged, as viewers do.
int exif_orientation(std::string_view block);

// True if upright() exchanges width and height.
bool exchanges_sides(int orientation);

// Returns the image upright: mirrored and rotated as the orientation 1 to 8 says.
Image upright(Image image, int orientation);

}  // namespace kindling
