#include "formats/images/exif.h"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

namespace kindling {
namespace {

constexpr std::uint32_t kOrientationTag = 0x0112, kShortType = 3;

// The TIFF structure in an EXIF block: numbers in the byte order that it names.
struct TiffBlock {
  std::string_view bytes;
  bool is_big_endian = false;

  bool holds(std::size_t at, std::size_t size) const {
    return at <= bytes.size() && bytes.size() - at >= size;
  }
  // Both return 0 outside of the block.
  std::uint32_t number16(std::size_t at) const {
    if (!holds(at, 2)) return 0;
    const auto byte = [&](std::size_t i) {
      return static_cast<std::uint32_t>(static_cast<std::uint8_t>(bytes[at + i]));
    };
    return is_big_endian ? byte(0) << 8 | byte(1) : byte(1) << 8 | byte(0);
  }
  std::uint32_t number32(std::size_t at) const {
    if (!holds(at, 4)) return 0;
    const std::uint32_t first = number16(at), second = number16(at + 2);
    return is_big_endian ? first << 16 | second : second << 16 | first;
  }
};

std::optional<int> exif_orientation(std::string_view exif) {
  if (exif.starts_with(kExifStart)) exif.remove_prefix(kExifStart.size());
  if (!exif.starts_with("II") && !exif.starts_with("MM")) return {};
  const TiffBlock block{exif, exif[0] == 'M'};
  const std::size_t directory = block.number32(4);
  const std::size_t entries = block.number16(directory);
  for (std::size_t i = 0; i < entries; ++i) {
    const std::size_t entry = directory + 2 + 12 * i;
    if (!block.holds(entry, 12)) return {};
    if (block.number16(entry) != kOrientationTag) continue;
    const std::uint32_t value = block.number16(entry + 8);
    const bool is_valid = block.number16(entry + 2) == kShortType && value >= 1 && value <= 8;
    return is_valid ? std::optional(static_cast<int>(value)) : std::nullopt;
  }
  return {};
}

// In XMP, tiff:Orientation is an attribute or an element.
std::optional<int> xmp_orientation(std::string_view packet) {
  constexpr std::string_view kName = "tiff:Orientation";
  for (std::size_t at = packet.find(kName); at != packet.npos; at = packet.find(kName, at + 1)) {
    std::string_view value = packet.substr(at + kName.size());
    if (!value.starts_with("=\"") && !value.starts_with("='") && !value.starts_with(">")) continue;
    value.remove_prefix(value.starts_with(">") ? 1 : 2);
    if (!value.empty() && value[0] >= '1' && value[0] <= '8') return value[0] - '0';
  }
  return {};
}

}  // namespace

void Orientation::add_exif(std::string_view block) {
  if (!exif_ || *exif_ == 1)
    if (const auto found = exif_orientation(block)) exif_ = found;
}

void Orientation::add_xmp(std::string_view packet) {
  if (!xmp_) xmp_ = xmp_orientation(packet);
}

bool exchanges_sides(int orientation) { return orientation >= 5; }

Image upright(Image image, int orientation) {
  if (orientation <= 1 || orientation > 8) return image;
  // The source of the pixel (x, y) of the result: exchanged first, then mirrored.
  const bool exchanged = exchanges_sides(orientation);
  const bool mirrors_x = orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8;
  const bool mirrors_y = orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
  Image out{.width = exchanged ? image.height : image.width,
            .height = exchanged ? image.width : image.height,
            .channels = image.channels,
            .pixels = std::vector<std::uint8_t>(image.pixels.size())};
  const auto channels = static_cast<std::size_t>(image.channels);
  std::uint8_t* to = out.pixels.data();
  for (std::int64_t y = 0; y < out.height; ++y)
    for (std::int64_t x = 0; x < out.width; ++x, to += channels) {
      std::int64_t from_x = exchanged ? y : x, from_y = exchanged ? x : y;
      if (mirrors_x) from_x = image.width - 1 - from_x;
      if (mirrors_y) from_y = image.height - 1 - from_y;
      std::memcpy(to, &image.pixels[static_cast<std::size_t>(from_y * image.width + from_x) * channels],
                  channels);
    }
  return out;
}

}  // namespace kindling
