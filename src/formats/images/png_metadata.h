#pragma once

#include <string_view>

namespace kindling {

// Returns the orientation 1 to 8 of a PNG file: that of its chunk eXIf or, without one, of the EXIF block
// that ImageMagick writes as a text, else that of XMP.
int png_orientation(std::string_view bytes);

}  // namespace kindling
