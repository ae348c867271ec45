#include "kindling/formats/image.h"

#include <cstddef>

#include "base/error_kind.h"
#include "formats/images/image_codecs.h"
#include "kindling/base/error.h"
#include "kindling/base/file.h"

namespace kindling {
namespace {

constexpr std::string_view kPngSignature = "\x89PNG\r\n\x1a\n", kJpegSignature = "\xff\xd8\xff";
constexpr std::size_t kMaxImageBytes = std::size_t{1} << 30;

}  // namespace

void refuse_image(const ImageSource& source, const std::string& format, const std::string& reason) {
  throw DataError({.place = source.place,
                   .found = "damaged " + format + " file: " + reason,
                   .remedy = "download or copy it again, or remove it"});
}

void refuse_format(const ImageSource& source, const std::string& format, const std::string& library,
                   const std::string& package) {
  throw DataError({.place = source.place,
                   .found = format + " files cannot be read: Kindling was built without " + library,
                   .remedy = "install the package " + package + " and build Kindling again"});
}

void check_image_size(const ImageSource& source, std::int64_t width, std::int64_t height,
                      std::int64_t max_pixels_per_byte) {
  const std::string size = std::to_string(width) + " x " + std::to_string(height) + " pixels";
  // Headers have at most 32 bits per side, so a product of two fits into 64.
  if (width * height > source.options.max_pixels)
    throw DataError({.place = source.place,
                     .found = "the image has " + size,
                     .wanted = "at most " + std::to_string(source.options.max_pixels) + " pixels"});
  if (width * height / max_pixels_per_byte > static_cast<std::int64_t>(source.bytes.size()))
    throw DataError({.place = source.place,
                     .found = "the header promises " + size + ", more than a file of " +
                              std::to_string(source.bytes.size()) + " bytes can hold",
                     .remedy = "download or copy it again, or remove it"});
}

void convert_to_grey(Image& image) {
  const auto count = static_cast<std::size_t>(image.width * image.height);
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint8_t* rgb = &image.pixels[3 * i];
    image.pixels[i] =
        static_cast<std::uint8_t>((rgb[0] * 19595U + rgb[1] * 38470U + rgb[2] * 7471U + 0x8000U) >> 16);
  }
  image.pixels.resize(count);
  image.channels = 1;
}

Image parse_image(std::string_view bytes, const std::string& place, const ImageOptions& options) {
  const ImageSource source{bytes, place, options};
  if (options.channels != 0 && options.channels != 1 && options.channels != 3)
    throw ConfigError({.place = "ImageOptions::channels",
                       .found = "it is " + std::to_string(options.channels),
                       .wanted = "0, 1 or 3"});
  if (bytes.starts_with(kPngSignature)) return decode_png(source);
  if (bytes.starts_with(kJpegSignature)) return decode_jpeg(source);
  throw DataError({.place = place,
                   .found = bytes.empty() ? "the file is empty" : "the file is neither PNG nor JPEG",
                   .wanted = "a PNG or JPEG image"});
}

Image read_image(const std::filesystem::path& path, const ImageOptions& options) {
  const std::string bytes = with_errors_as<DataError>([&] { return read_file(path, kMaxImageBytes); });
  return parse_image(bytes, path.string(), options);
}

void write_png(const std::filesystem::path& path, const Image& image) {
  constexpr std::int64_t kMaxSide = 1'000'000'000;  // so that the product below fits into 64 bits
  const auto is_side = [](std::int64_t side) { return side > 0 && side <= kMaxSide; };
  const bool has_size =
      is_side(image.width) && is_side(image.height) && (image.channels == 1 || image.channels == 3);
  if (!has_size ||
      image.pixels.size() != static_cast<std::size_t>(image.height * image.width * image.channels))
    throw ConfigError({.place = path.string(),
                       .found = "an image of height " + std::to_string(image.height) + ", width " +
                                std::to_string(image.width) + " and " + std::to_string(image.channels) +
                                " channels with " + std::to_string(image.pixels.size()) + " values",
                       .wanted = "1 or 3 channels and a value per pixel and channel"});
  write_file_atomically(path, encode_png(image, path.string()));
}

}  // namespace kindling
