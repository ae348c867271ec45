#pragma once

#include <optional>
#include <string_view>

#include "kindling/formats/image.h"

// The orientation of images: how they are mirrored and rotated to be upright.
namespace kindling {

inline constexpr std::string_view kExifStart("Exif\0\0",
                                             6);  // of a block in JPEG, where it is optional elsewhere

// The orientation that the metadata of a file say: that of EXIF or, if EXIF says none, that of XMP. Damaged
// metadata say none, as in viewers.
class Orientation {
 public:
  // Of several EXIF blocks, the first one counts that turns the image.
  void add_exif(std::string_view block);
  void add_xmp(std::string_view packet);
  // From 1 to 8; 1 without metadata: the pixels are upright.
  int number() const { return exif_.value_or(xmp_.value_or(1)); }

 private:
  std::optional<int> exif_{}, xmp_{};
};

// True if upright() exchanges width and height.
bool exchanges_sides(int orientation);

// Returns the image upright: mirrored and rotated as the orientation 1 to 8 says.
Image upright(Image image, int orientation);

}  // namespace kindling
