#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "kindling/base/export.h"

// Reads PNG, JPEG, WebP and TIFF files with libpng, libjpeg-turbo, libwebp and libtiff, each if Kindling was
// built with it, and BMP files without a library. Writes PNG files.
namespace kindling {

// The pixels of an image.
struct Image {
  std::int64_t width = 0, height = 0;
  std::int64_t channels = 0;         // 1: grey, 3: red, green, blue
  std::vector<std::uint8_t> pixels;  // [height, width, channels], row-major
};

struct ImageOptions {
  // 1 or 3: converts (grey = 0.299 R + 0.587 G + 0.114 B); 0: as in the file, a palette counts as color, in
  // BMP files only if it has other colors than grey.
  std::int64_t channels = 0;
  // Files whose header promises more pixels are refused before memory for them is allocated.
  std::int64_t max_pixels = 100'000'000;
  // Height and width that the caller resizes to, {0, 0}: unknown. JPEG files are decoded at 1/2, 1/4 or 1/8
  // of their size, which is faster, if the result is still at least this large. Other files have their full
  // size.
  std::array<std::int64_t, 2> wanted_size{0, 0};
};

// True if Kindling was built with the library for these files. PNG files can then be written, too.
KINDLING_API bool can_read_png() noexcept;
KINDLING_API bool can_read_jpeg() noexcept;
KINDLING_API bool can_read_webp() noexcept;
KINDLING_API bool can_read_tiff() noexcept;

// Returns the name of the format of images, such as "PNG" or "GIF", that the first bytes of a file show;
// empty for other files. 32 bytes are enough.
KINDLING_API std::string_view image_format(std::string_view first_bytes) noexcept;
// True for the formats that Kindling reads, if it was built with their libraries.
KINDLING_API bool can_read_image(std::string_view format) noexcept;

// Both throw DataError, which begins with the path or `place`, for files that are damaged, incomplete, too
// large, of another format, or whose library is missing. Usable from several threads.
//
// 16-bit values are scaled to 8 bits; of TIFF files they lose their lower byte. Alpha and transparent colors
// are dropped, as PIL's convert("RGB") does. Images are rotated and mirrored as the orientation in their EXIF
// or, without one, XMP metadata says, and `wanted_size` means the result. CMYK becomes RGB without a color
// profile. No profile or gamma is applied. Of a TIFF file the first page is read; animations are refused.
KINDLING_API Image read_image(const std::filesystem::path& path, const ImageOptions& options = {});
KINDLING_API Image parse_image(std::string_view bytes, const std::string& place,
                               const ImageOptions& options = {});

// Return the values of a mask, an image of 1 channel: of a PNG file with a palette the indices, as
// np.array(Image.open(path)) of Pillow's mode P, and of a grey one its values, which are not scaled. Throw
// DataError for color files, for values above 255, and for files of other formats, whose values may be
// changed by compression.
KINDLING_API Image read_mask(const std::filesystem::path& path);
KINDLING_API Image parse_mask(std::string_view bytes, const std::string& place);

// Writes the values of a mask as a PNG file with a palette, atomically: black for 0, and the colors of the
// PASCAL VOC data set, so that the classes can be seen. Throws as write_png().
KINDLING_API void write_mask(const std::filesystem::path& path, const Image& mask);

// Writes an image of 1 or 3 channels as a PNG file, atomically. Throws Error if the file cannot be written or
// libpng is missing, and ConfigError if `pixels` does not have the image's size.
KINDLING_API void write_png(const std::filesystem::path& path, const Image& image);

}  // namespace kindling
