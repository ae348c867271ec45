#include <webp/decode.h>

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>

#include "formats/images/exif.h"
#include "formats/images/image_codecs.h"

namespace kindling {
namespace {

// A lossless file of one color has a size that does not depend on its pixels.
constexpr std::int64_t kMaxWebpPixelsPerByte = std::int64_t{1} << 30;

// Returns the orientation that the chunks EXIF and XMP say.
int webp_orientation(std::string_view bytes) {
  constexpr std::size_t kRiffHeader = 12, kChunkHeader = 8;
  Orientation orientation;
  for (std::size_t at = kRiffHeader; at <= bytes.size() && bytes.size() - at >= kChunkHeader;) {
    std::size_t length = 0;
    for (std::size_t i = 4; i-- > 0;) length = length << 8 | static_cast<std::uint8_t>(bytes[at + 4 + i]);
    if (bytes.size() - at - kChunkHeader < length) break;
    const std::string_view type = bytes.substr(at, 4), content = bytes.substr(at + kChunkHeader, length);
    if (type == "EXIF") orientation.add_exif(content);
    if (type == "XMP ") orientation.add_xmp(content);
    at += kChunkHeader + length + length % 2;
  }
  return orientation.number();
}

}  // namespace

bool can_read_webp() noexcept { return true; }

Image decode_webp(const ImageSource& source) {
  const auto* const bytes = reinterpret_cast<const std::uint8_t*>(source.bytes.data());
  WebPBitstreamFeatures features;
  if (WebPGetFeatures(bytes, source.bytes.size(), &features) != VP8_STATUS_OK)
    refuse_image(source, "WebP", "its header cannot be read");
  check_image_size(source, features.width, features.height, kMaxWebpPixelsPerByte);
  if (features.has_animation != 0) refuse_content(source, "an animation in a WebP file", "an image");
  Image image{.width = features.width, .height = features.height, .channels = 3, .pixels = {}};
  image.pixels.resize(static_cast<std::size_t>(image.width * image.height * 3));
  if (WebPDecodeRGBInto(bytes, source.bytes.size(), image.pixels.data(), image.pixels.size(),
                        static_cast<int>(image.width * 3)) == nullptr)
    refuse_image(source, "WebP", "its pixels cannot be read");
  if (source.options.channels == 1) convert_to_grey(image);
  return upright(std::move(image), webp_orientation(source.bytes));
}

}  // namespace kindling
