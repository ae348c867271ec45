#include "formats/images/image_codecs.h"

namespace kindling {

bool can_read_jpeg() noexcept { return false; }

Image decode_jpeg(const ImageSource& source) {
  refuse_format(source, "JPEG", "libjpeg-turbo", "libjpeg-dev");
}

}  // namespace kindling
