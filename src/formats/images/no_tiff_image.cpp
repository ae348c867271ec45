#include "formats/images/image_codecs.h"

namespace kindling {

bool can_read_tiff() noexcept { return false; }

Image decode_tiff(const ImageSource& source) { refuse_format(source, "TIFF", "libtiff", "libtiff-dev"); }

}  // namespace kindling
