#pragma once

#include <string>
#include <string_view>

namespace kindling {

// Returns a PNG file whose pixels are stored instead of compressed: inflate_whole() takes less than half as
// long to inflate them as libpng. The checksums of the pixels are zero, because those of `bytes` have been
// checked, as have those of all other chunks. Returns an empty string if libpng has to read `bytes`
// themselves, which also reports their damage; so for damaged, interlaced and very large images.
std::string store_png_pixels(std::string_view bytes);

}  // namespace kindling
