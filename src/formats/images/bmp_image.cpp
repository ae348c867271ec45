#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "formats/images/image_codecs.h"

// The format is described in Microsoft's documentation of the structures BITMAPFILEHEADER, BITMAPCOREHEADER,
// BITMAPINFOHEADER and BITMAPV5HEADER.
namespace kindling {
namespace {

constexpr std::size_t kFileHeader = 14, kCoreHeader = 12, kInfoHeader = 40;
// A run of two bytes has up to 255 pixels, and an end of line or a jump leaves out pixels.
constexpr std::int64_t kMaxBmpPixelsPerByte = std::int64_t{1} << 16;

enum class BmpCompression : std::uint32_t { none = 0, rle8 = 1, rle4 = 2, masks = 3, masks_with_alpha = 6 };

struct Color {
  std::uint8_t red = 0, green = 0, blue = 0;
};

class BmpFile {
 public:
  explicit BmpFile(const ImageSource& source) : source_(source) {
    read_header();
    if (bits_ <= 8)
      read_palette();
    else
      read_masks();
  }

  Image image() const {
    Image image{.width = width_, .height = height_, .channels = 3, .pixels = {}};
    image.pixels.resize(static_cast<std::size_t>(width_ * height_ * 3));
    if (has_runs())
      read_runs(image);
    else
      for (std::int64_t y = 0; y < height_; ++y) read_row(image, y);
    return image;
  }
  bool is_grey() const {
    for (const Color& color : palette_)
      if (color.red != color.green || color.red != color.blue) return false;
    return bits_ <= 8;
  }

 private:
  [[noreturn]] void refuse(const std::string& reason) const { refuse_image(source_, "BMP", reason); }

  std::uint32_t number(std::size_t at, std::size_t size) const {
    if (at > source_.bytes.size() || source_.bytes.size() - at < size) refuse("it ends too early");
    std::uint32_t value = 0;
    for (std::size_t i = size; i-- > 0;)
      value = value << 8 | static_cast<std::uint8_t>(source_.bytes[at + i]);
    return value;
  }

  void read_header() {
    pixels_at_ = number(10, 4);
    header_size_ = number(kFileHeader, 4);
    if (header_size_ == kCoreHeader) {
      width_ = number(18, 2);
      height_ = number(20, 2);
      bits_ = number(24, 2);
    } else if (header_size_ >= kInfoHeader) {
      width_ = static_cast<std::int32_t>(number(18, 4));
      height_ = static_cast<std::int32_t>(number(22, 4));
      bits_ = number(28, 2);
      compression_ = static_cast<BmpCompression>(number(30, 4));
      num_colors_ = number(46, 4);
    } else {
      refuse("a header of " + std::to_string(header_size_) + " bytes");
    }
    is_top_down_ = height_ < 0;
    height_ = is_top_down_ ? -height_ : height_;
    if (width_ <= 0 || height_ == 0) refuse("an image without pixels");
    check_image_size(source_, width_, height_, kMaxBmpPixelsPerByte);
    if (!is_known())
      refuse_content(source_,
                     "a BMP file of " + std::to_string(bits_) + " bits per pixel with compression " +
                         std::to_string(static_cast<std::uint32_t>(compression_)),
                     "1 to 32 bits per pixel, plain, with masks, or runs of 4 or 8 bits");
    const std::size_t num_bytes = row_bytes() * static_cast<std::size_t>(height_);
    const std::size_t size = source_.bytes.size();
    if (!has_runs() && (size < pixels_at_ || size - pixels_at_ < num_bytes)) refuse("it ends too early");
  }

  bool has_runs() const {
    return compression_ == BmpCompression::rle8 || compression_ == BmpCompression::rle4;
  }

  bool is_known() const {
    switch (compression_) {
      case BmpCompression::none:
        return bits_ == 24 || (bits_ <= 32 && std::has_single_bit(bits_));
      case BmpCompression::rle8:
        return bits_ == 8;
      case BmpCompression::rle4:
        return bits_ == 4;
      case BmpCompression::masks:
      case BmpCompression::masks_with_alpha:
        return bits_ == 16 || bits_ == 32;
    }
    return false;
  }

  std::size_t row_bytes() const { return (static_cast<std::size_t>(width_) * bits_ + 31) / 32 * 4; }

  void read_palette() {
    const std::size_t entry = header_size_ == kCoreHeader ? 3 : 4;
    const std::size_t most = std::size_t{1} << bits_;
    const std::size_t count = num_colors_ == 0 || num_colors_ > most ? most : num_colors_;
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t at = kFileHeader + header_size_ + i * entry;
      palette_.push_back({.red = static_cast<std::uint8_t>(number(at + 2, 1)),
                          .green = static_cast<std::uint8_t>(number(at + 1, 1)),
                          .blue = static_cast<std::uint8_t>(number(at, 1))});
    }
  }

  void read_masks() {
    if (compression_ == BmpCompression::none) {
      if (bits_ == 16) masks_ = {0x7c00, 0x3e0, 0x1f};
      return;
    }
    for (std::size_t i = 0; i < 3; ++i) masks_[i] = number(kFileHeader + kInfoHeader + 4 * i, 4);
    for (const std::uint32_t mask : masks_)
      if (mask == 0 || !std::has_single_bit((mask >> std::countr_zero(mask)) + 1ULL))
        refuse("masks of colors with gaps");
  }

  Color color_of(std::uint32_t pixel) const {
    if (bits_ <= 8) {
      if (pixel >= palette_.size()) refuse("a color outside of the palette");
      return palette_[pixel];
    }
    const auto value = [&](std::uint32_t mask) {
      const std::uint64_t largest = mask >> std::countr_zero(mask);
      return static_cast<std::uint8_t>(((pixel & mask) >> std::countr_zero(mask)) * 255ULL / largest);
    };
    return {.red = value(masks_[0]), .green = value(masks_[1]), .blue = value(masks_[2])};
  }

  // `y` counts from the first row of the file.
  void put(Image& image, std::int64_t x, std::int64_t y, Color color) const {
    if (x >= width_ || y >= height_) refuse("a run that leaves the image");
    std::uint8_t* const to =
        &image.pixels[static_cast<std::size_t>(((is_top_down_ ? y : height_ - 1 - y) * width_ + x) * 3)];
    to[0] = color.red, to[1] = color.green, to[2] = color.blue;
  }

  void read_row(Image& image, std::int64_t y) const {
    const std::size_t row = pixels_at_ + row_bytes() * static_cast<std::size_t>(y);
    for (std::int64_t x = 0; x < width_; ++x) {
      const std::size_t bit = static_cast<std::size_t>(x) * bits_;
      std::uint32_t pixel = number(row + bit / 8, bits_ < 8 ? 1 : bits_ / 8);
      if (bits_ < 8) pixel = pixel >> (8 - bits_ - bit % 8) & ((1U << bits_) - 1);
      put(image, x, y, color_of(pixel));
    }
  }

  // Pairs of a count and a color; a count of 0 is followed by a command.
  void read_runs(Image& image) const {
    const Color first = color_of(0);  // of pixels that no run has
    for (std::size_t i = 0; i < image.pixels.size() / 3; ++i) {
      image.pixels[3 * i] = first.red, image.pixels[3 * i + 1] = first.green,
                       image.pixels[3 * i + 2] = first.blue;
    }
    const bool is_halves = compression_ == BmpCompression::rle4;
    std::int64_t x = 0, y = 0;
    // The i-th color of a sequence at `at`.
    const auto color_at = [&](std::size_t at, std::size_t i, bool repeats) {
      if (!is_halves) return color_of(number(at + (repeats ? 0 : i), 1));
      const std::uint32_t both = number(at + (repeats ? 0 : i / 2), 1);
      return color_of(i % 2 == 0 ? both >> 4 : both & 15);
    };
    // The end mark may be absent after the last row.
    for (std::size_t at = pixels_at_; y < height_ || at + 1 < source_.bytes.size();) {
      const std::size_t count = number(at, 1);
      const std::uint32_t value = number(at + 1, 1);
      at += 2;
      if (count > 0) {
        for (std::size_t i = 0; i < count && x < width_; ++i) put(image, x++, y, color_at(at - 1, i, true));
      } else if (value == 0) {
        x = 0, ++y;
      } else if (value == 1) {
        return;
      } else if (value == 2) {
        x += number(at, 1), y += number(at + 1, 1);
        at += 2;
      } else {
        for (std::size_t i = 0; i < value && x < width_; ++i) put(image, x++, y, color_at(at, i, false));
        const std::size_t num_bytes = is_halves ? (value + 1) / 2 : value;
        at += (num_bytes + 1) / 2 * 2;
      }
    }
  }

  const ImageSource& source_;
  std::size_t pixels_at_ = 0, header_size_ = 0, num_colors_ = 0;
  std::int64_t width_ = 0, height_ = 0;
  bool is_top_down_ = false;
  std::uint32_t bits_ = 0;
  BmpCompression compression_ = BmpCompression::none;
  std::vector<Color> palette_{};
  std::array<std::uint32_t, 3> masks_{0xff0000, 0xff00, 0xff};  // red, green, blue
};

}  // namespace

bool can_read_bmp() noexcept { return true; }

Image decode_bmp(const ImageSource& source) {
  const BmpFile file(source);
  Image image = file.image();
  const std::int64_t wanted = source.options.channels;
  if (wanted == 1 || (wanted == 0 && file.is_grey())) convert_to_grey(image);
  return image;
}

}  // namespace kindling
