#include "formats/images/image_codecs.h"
#include "kindling/base/error.h"

namespace kindling {

bool can_read_png() noexcept { return false; }

Image decode_png(const ImageSource& source) { refuse_format(source, "PNG", "libpng", "libpng-dev"); }

Image decode_png_mask(const ImageSource& source) { return decode_png(source); }

std::string encode_png(const Image&, const std::string& place, const std::vector<std::uint8_t>&) {
  throw Error({.place = place,
               .found = "PNG files cannot be written: Kindling was built without libpng",
               .remedy = "install the package libpng-dev and build Kindling again"});
}

}  // namespace kindling
