#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kindling/formats/image.h"

namespace kindling {

// A file in memory and what is wanted of it.
struct ImageSource {
  std::string_view bytes;
  const std::string& place;
  const ImageOptions& options;
};

// Return the image with the channels of the options. Those of a library that is missing are defined in
// no_png_image.cpp and the like, and throw.
Image decode_png(const ImageSource& source);
Image decode_jpeg(const ImageSource& source);
Image decode_bmp(const ImageSource& source);
Image decode_webp(const ImageSource& source);
Image decode_tiff(const ImageSource& source);
bool can_read_bmp() noexcept;
// Returns the values of a mask (read_mask()).
Image decode_png_mask(const ImageSource& source);
// Returns the bytes of a PNG file; `place` is for messages. The image has been checked. `palette`: 256 colors
// of the values of an image with one channel, as red, green, blue; empty: none.
std::string encode_png(const Image& image, const std::string& place,
                       const std::vector<std::uint8_t>& palette = {});
// The colors of class numbers in PASCAL VOC.
std::vector<std::uint8_t> voc_palette();

// Throws DataError for a damaged file.
[[noreturn]] void refuse_image(const ImageSource& source, const std::string& format,
                               const std::string& reason);
// Throws DataError for a whole file that Kindling does not read.
[[noreturn]] void refuse_content(const ImageSource& source, const std::string& found,
                                 const std::string& wanted);
// Throws DataError that names the package of a library that Kindling was built without.
[[noreturn]] void refuse_format(const ImageSource& source, const std::string& format,
                                const std::string& library, const std::string& package);

// Throws DataError if the pixels of the header exceed the options' limit, or what so few bytes can hold. Each
// byte holds at most `max_pixels_per_byte`.
void check_image_size(const ImageSource& source, std::int64_t width, std::int64_t height,
                      std::int64_t max_pixels_per_byte);

// Replaces RGB by grey, with PIL's rounding.
void convert_to_grey(Image& image);

}  // namespace kindling
