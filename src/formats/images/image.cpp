#include "kindling/formats/image.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "base/error_kind.h"
#include "formats/images/image_codecs.h"
#include "kindling/base/error.h"
#include "kindling/base/file.h"

namespace kindling {
namespace {

using namespace std::string_view_literals;

constexpr std::size_t kMaxImageBytes = std::size_t{1} << 30;

// What a file of a format contains from a position on.
struct Signature {
  std::string_view format, bytes;
  std::size_t at = 0;
};

constexpr std::array kSignatures{
    Signature{"PNG", "\x89PNG\r\n\x1a\n"},
    Signature{"JPEG", "\xff\xd8\xff"},
    Signature{"WebP", "WEBP", 8},
    Signature{"TIFF", "II*\0"sv},
    Signature{"TIFF", "MM\0*"sv},
    Signature{"TIFF", "II+\0\x08"sv},  // of more than 4 GiB
    Signature{"TIFF", "MM\0+\0\x08"sv},
    Signature{"GIF", "GIF8"},
    Signature{"AVIF", "ftypavif", 4},
    Signature{"AVIF", "ftypavis", 4},
    Signature{"HEIF", "ftyphei", 4},
    Signature{"HEIF", "ftyphev", 4},
    Signature{"HEIF", "ftypmif1", 4},
    Signature{"JPEG XL", "\xff\x0a"},
    Signature{"JPEG XL", "\0\0\0\x0cJXL "sv},
    Signature{"JPEG 2000", "\0\0\0\x0cjP  "sv},
    Signature{"JPEG 2000", "\xff\x4f\xff\x51"},
    Signature{"ICO", "\0\0\x01\0"sv},
    Signature{"PSD", "8BPS\0\x01"sv},
    Signature{"DDS", "DDS \x7c\0\0\0"sv},
    Signature{"OpenEXR", "v/1\x01"},
};

struct Codec {
  std::string_view format;
  bool (*can_read)() noexcept;
  Image (*decode)(const ImageSource&);
};

constexpr std::array kCodecs{
    Codec{"PNG", &can_read_png, &decode_png},    Codec{"JPEG", &can_read_jpeg, &decode_jpeg},
    Codec{"BMP", &can_read_bmp, &decode_bmp},    Codec{"WebP", &can_read_webp, &decode_webp},
    Codec{"TIFF", &can_read_tiff, &decode_tiff},
};

const Codec* codec_of(std::string_view format) {
  const auto* const found = std::ranges::find(kCodecs, format, &Codec::format);
  return found == kCodecs.end() ? nullptr : &*found;
}

// Two letters would be too few: the rest of the file's header is zero, and that of the image has a known
// size.
bool is_bmp(std::string_view bytes) {
  constexpr std::string_view kHeaderSizes = "\x0c\x28\x34\x38\x40\x6c\x7c";
  return bytes.size() >= 18 && bytes.starts_with("BM") && bytes.substr(15, 3) == "\0\0\0"sv &&
         kHeaderSizes.find(bytes[14]) != std::string_view::npos;
}

void check_for_writing(const std::filesystem::path& path, const Image& image) {
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
}

}  // namespace

// Three bits of the class per channel, the most significant bit of the color first.
std::vector<std::uint8_t> voc_palette() {
  std::vector<std::uint8_t> colors(std::size_t{3} * 256);
  for (unsigned value = 0; value < 256; ++value)
    for (unsigned bit = 0; bit < 8; ++bit)
      colors[3 * value + bit % 3] |= static_cast<std::uint8_t>((value >> bit & 1U) << (7 - bit / 3));
  return colors;
}

std::string_view image_format(std::string_view first_bytes) noexcept {
  for (const Signature& signature : kSignatures)
    if (first_bytes.size() >= signature.at && first_bytes.substr(signature.at).starts_with(signature.bytes))
      return signature.format;
  return is_bmp(first_bytes) ? "BMP" : "";
}

bool can_read_image(std::string_view format) noexcept {
  const Codec* const codec = codec_of(format);
  return codec != nullptr && codec->can_read();
}

void refuse_content(const ImageSource& source, const std::string& found, const std::string& wanted) {
  throw DataError({.place = source.place, .found = found, .wanted = wanted});
}

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
  // Headers have at most 32 bits per side.
  const std::uint64_t pixels = static_cast<std::uint64_t>(width) * static_cast<std::uint64_t>(height);
  if (pixels > static_cast<std::uint64_t>(source.options.max_pixels))
    throw DataError({.place = source.place,
                     .found = "the image has " + size,
                     .wanted = "at most " + std::to_string(source.options.max_pixels) + " pixels"});
  if (pixels / static_cast<std::uint64_t>(max_pixels_per_byte) > source.bytes.size())
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
  const std::string format(image_format(bytes));
  if (const Codec* const codec = codec_of(format)) return codec->decode(source);
  const std::string found = bytes.empty()    ? "the file is empty"
                            : format.empty() ? "the file is not an image"
                                             : "Kindling does not read the format " + format;
  refuse_content(source, found, "a PNG, JPEG, BMP, WebP or TIFF image");
}

Image read_image(const std::filesystem::path& path, const ImageOptions& options) {
  const std::string bytes = with_errors_as<DataError>([&] { return read_file(path, kMaxImageBytes); });
  return parse_image(bytes, path.string(), options);
}

Image parse_mask(std::string_view bytes, const std::string& place) {
  const ImageOptions options;
  const ImageSource source{bytes, place, options};
  const std::string format(image_format(bytes));
  if (format == "PNG") return decode_png_mask(source);
  throw DataError({.place = place,
                   .found = format.empty() ? "the file is not an image" : "it is a " + format + " file",
                   .wanted = "a mask as a PNG file",
                   .remedy = format == "JPEG"
                                 ? "JPEG changes the values of pixels: save the original mask as "
                                   "PNG, a converted file keeps its errors"
                                 : "convert it to PNG, which keeps all values"});
}

Image read_mask(const std::filesystem::path& path) {
  const std::string bytes = with_errors_as<DataError>([&] { return read_file(path, kMaxImageBytes); });
  return parse_mask(bytes, path.string());
}

void write_mask(const std::filesystem::path& path, const Image& mask) {
  if (mask.channels != 1)
    throw ConfigError({.place = path.string(),
                       .found = "a mask of " + std::to_string(mask.channels) + " channels",
                       .wanted = "one channel"});
  check_for_writing(path, mask);
  write_file_atomically(path, encode_png(mask, path.string(), voc_palette()));
}

void write_png(const std::filesystem::path& path, const Image& image) {
  check_for_writing(path, image);
  write_file_atomically(path, encode_png(image, path.string()));
}

}  // namespace kindling
