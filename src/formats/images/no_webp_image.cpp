#include "formats/images/image_codecs.h"

namespace kindling {

bool can_read_webp() noexcept { return false; }

Image decode_webp(const ImageSource& source) { refuse_format(source, "WebP", "libwebp", "libwebp-dev"); }

}  // namespace kindling
