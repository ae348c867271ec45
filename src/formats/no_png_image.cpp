#include "formats/image_codecs.h"

namespace kindling {

bool can_read_png() noexcept { return false; }

Image decode_png(const ImageSource& source) { refuse_format(source, "PNG", "libpng", "libpng-dev"); }

}  // namespace kindling
