// The formats beside PNG and JPEG, and the orientation of files that are not JPEG.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <string>

#include "formats/images/image_fixtures.h"

namespace kindling {
namespace {

// Pixel (x, y) of 5 x 3 pixels, see make_images.py.
Pixels small_pixels() {
  Pixels pixels;
  for (int y = 0; y < 3; ++y)
    for (int x = 0; x < 5; ++x)
      for (const int value : {40 * x + y, 10 * y, 255 - 30 * x})
        pixels.push_back(static_cast<std::uint8_t>(value));
  return pixels;
}

// The same after a rotation to the right, as orientation 6 asks.
Pixels turned_pixels() {
  const Pixels from = small_pixels();
  Pixels pixels;
  for (std::size_t y = 0; y < 5; ++y)
    for (std::size_t x = 0; x < 3; ++x)
      for (std::size_t c = 0; c < 3; ++c) pixels.push_back(from[3 * (5 * (2 - x) + y) + c]);
  return pixels;
}

void expect_file(const std::string& name, std::int64_t width, const Pixels& pixels,
                 std::int64_t channels = 3) {
  SCOPED_TRACE(name);
  const Image image = read_image(kImageFixtures / name);
  EXPECT_EQ(image.width, width);
  EXPECT_EQ(image.height, 15 / width);
  EXPECT_EQ(image.channels, channels);
  EXPECT_EQ(image.pixels, pixels);
}

TEST(TurnedImages, ArePngFiles) {
  if (!can_read_png()) GTEST_SKIP() << "built without libpng";
  expect_file("turned.png", 3, turned_pixels());
}

TEST(WebpImages, AreRead) {
  if (!can_read_webp()) GTEST_SKIP() << "built without libwebp";
  expect_file("lossless.webp", 5, small_pixels());
  expect_file("alpha.webp", 5, small_pixels());
  expect_file("turned.webp", 3, turned_pixels());
  EXPECT_EQ(read_image(kImageFixtures / "lossless.webp", {.channels = 1}).pixels[0], 29);  // 0.114 * 255
  const std::string animation = image_fixture("animation.webp"), whole = image_fixture("lossless.webp");
  EXPECT_EQ(image_refusal(animation), "x: an animation in a WebP file; expected: an image");
  for (const std::size_t size : {13, 20, 31})
    EXPECT_NE(image_refusal(whole.substr(0, size)).find("damaged WebP file"), std::string::npos) << size;
  EXPECT_EQ(image_refusal(whole, {.max_pixels = 14}),
            "x: the image has 5 x 3 pixels; expected: at most 14 pixels");
}

TEST(TiffImages, AreRead) {
  if (!can_read_tiff()) GTEST_SKIP() << "built without libtiff";
  expect_file("alpha.tif", 5, small_pixels());
  expect_file("palette.tif", 5, small_pixels());
  expect_file("turned.tif", 3, turned_pixels());
  Pixels grey, bits;
  for (int y = 0; y < 3; ++y)
    for (int x = 0; x < 5; ++x) {
      grey.push_back(static_cast<std::uint8_t>(17 * (x + y)));  // 4369 * (x + y) / 257
      bits.push_back((x + y) % 2 == 0 ? 255 : 0);
    }
  expect_file("grey16.tif", 5, grey, 1);
  expect_file("bilevel.tif", 5, bits, 1);
  EXPECT_EQ(image_refusal(image_fixture("cmyk.tif")),
            "x: a TIFF file whose colors are neither grey nor RGB; expected: 8 or 16 bits per value, grey, "
            "RGB or a "
            "palette");
  const std::string whole = image_fixture("turned.tif");
  for (const std::size_t size : {std::size_t{6}, std::size_t{20}, whole.size() / 2})
    EXPECT_NE(image_refusal(whole.substr(0, size)).find("damaged TIFF file"), std::string::npos) << size;
}

// Little-endian.
std::string number_bytes(std::uint32_t value, int size) {
  std::string bytes;
  for (int i = 0; i < size; ++i) bytes += static_cast<char>(i < 4 ? value >> (8 * i) & 255 : 0);
  return bytes;
}

// An entry of a directory of TIFF: a number of 4 bytes, or of 2.
std::string tiff_entry(int tag, std::uint32_t value, bool is_short = false) {
  return number_bytes(static_cast<std::uint32_t>(tag), 2) + number_bytes(is_short ? 3 : 4, 2) +
         number_bytes(1, 4) + number_bytes(value, 4);
}

// A file of one value per pixel, in one strip of 4 bytes.
std::string tiff_file(std::uint32_t width, std::uint32_t height, std::uint32_t bits) {
  return std::string("II*\0", 4) + number_bytes(12, 4) + "dots" + number_bytes(8, 2) +
         tiff_entry(256, width) + tiff_entry(257, height) + tiff_entry(258, bits, true) +
         tiff_entry(259, 1, true) + tiff_entry(262, 1, true) + tiff_entry(273, 8) + tiff_entry(278, height) +
         tiff_entry(279, 4) + number_bytes(0, 4);
}

TEST(TiffImages, SizesAreCheckedBeforeAllocation) {
  if (!can_read_tiff()) GTEST_SKIP() << "built without libtiff";
  EXPECT_EQ(parse_image(tiff_file(4, 1, 8), "x").pixels, (Pixels{'d', 'o', 't', 's'}));
  for (const std::uint32_t side : {0xffffffffU, 100'000U})
    EXPECT_EQ(image_refusal(tiff_file(side, side, 1)), "x: the image has " + std::to_string(side) + " x " +
                                                           std::to_string(side) +
                                                           " pixels; expected: at most 100000000 pixels");
}

// A file with a header of 40 bytes; `rest`: masks or the palette, then the pixels.
std::string bmp_file(std::int32_t width, std::int32_t height, std::uint32_t bits, std::uint32_t compression,
                     const std::string& before_pixels, const std::string& pixels,
                     std::uint32_t num_colors = 0) {
  const auto begin = static_cast<std::uint32_t>(54 + before_pixels.size());
  return "BM" + number_bytes(begin + static_cast<std::uint32_t>(pixels.size()), 4) + number_bytes(0, 4) +
         number_bytes(begin, 4) + number_bytes(40, 4) + number_bytes(static_cast<std::uint32_t>(width), 4) +
         number_bytes(static_cast<std::uint32_t>(height), 4) + number_bytes(1, 2) + number_bytes(bits, 2) +
         number_bytes(compression, 4) + number_bytes(0, 12) + number_bytes(num_colors, 4) +
         number_bytes(0, 4) + before_pixels + pixels;
}

TEST(BmpImages, AreRead) {
  const auto pixels = [](const std::string& file) { return parse_image(file, "x").pixels; };
  expect_file("palette.bmp", 5, small_pixels());
  const Image grey = read_image(kImageFixtures / "grey.bmp");
  EXPECT_EQ(grey.channels, 1);
  EXPECT_EQ(grey.pixels[14], 42);  // 10 * 4 + 2
  // The last row comes first, unless the height is negative. Rows have multiples of four bytes.
  const std::string two_rows("\x03\x02\x01\0\x06\x05\x04\0", 8);
  EXPECT_EQ(pixels(bmp_file(1, 2, 24, 0, "", two_rows)), (Pixels{4, 5, 6, 1, 2, 3}));
  EXPECT_EQ(pixels(bmp_file(1, -2, 24, 0, "", two_rows)), (Pixels{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(pixels(bmp_file(1, 1, 32, 0, "", "\x03\x02\x01\x09")), (Pixels{1, 2, 3}));
  // 5 bits a color: 31 is 255, 1 is 8 (255 / 31 = 8.2).
  EXPECT_EQ(pixels(bmp_file(1, 1, 16, 0, "", number_bytes(31 << 10 | 1 << 5, 4))), (Pixels{255, 8, 0}));
  const std::string masks = number_bytes(0xf800, 4) + number_bytes(0x7e0, 4) + number_bytes(0x1f, 4);
  EXPECT_EQ(pixels(bmp_file(1, 1, 16, 3, masks, number_bytes(63 << 5 | 1, 4))), (Pixels{0, 255, 8}));
  const std::string black_and_red("\0\0\0\0\0\0\xff\0", 8);
  EXPECT_EQ(pixels(bmp_file(2, 1, 1, 0, black_and_red, number_bytes(0x40, 4))), (Pixels{0, 0, 0, 255, 0, 0}));
}

TEST(BmpImages, AreReadFromRuns) {
  const std::string colors("\0\0\0\0\x01\x01\x01\0\x02\x02\x02\0", 12);  // grey
  const auto pixels = [&](std::uint32_t bits, const std::string& runs) {
    return parse_image(bmp_file(4, -2, bits, bits == 8 ? 1 : 2, colors, runs, 3), "x").pixels;
  };
  // Three of color 1, the end of the line; three single ones with a byte of padding, the end.
  EXPECT_EQ(pixels(8, {"\3\1\0\0\0\3\2\1\2\0\0\1", 12}), (Pixels{1, 1, 1, 0, 2, 1, 2, 0}));
  // A jump by one column and one row.
  EXPECT_EQ(pixels(8, {"\1\2\0\2\1\1\1\1\0\1", 10}), (Pixels{2, 0, 0, 0, 0, 0, 1, 0}));
  // The end mark may be absent after the last row.
  EXPECT_EQ(pixels(8, {"\4\1\0\0\4\2\0\0", 8}), (Pixels{1, 1, 1, 1, 2, 2, 2, 2}));
  // Colors alternate in runs of halves.
  EXPECT_EQ(pixels(4, {"\4\x12\0\0\0\3\x21\x20\0\1", 10}), (Pixels{1, 2, 1, 2, 2, 1, 2, 0}));
}

TEST(BmpImages, DamageIsRefused) {
  const std::string palette("\0\0\0\0", 4), row("\1\0\0\0", 4);
  EXPECT_EQ(image_refusal(bmp_file(1, 1, 8, 0, palette, row, 1)),
            "x: damaged BMP file: a color outside of the palette; download or copy it again, or remove it");
  for (const std::string& file :
       {bmp_file(2, 2, 24, 0, "", "short"), bmp_file(0, 2, 24, 0, "", ""),
        bmp_file(1, 1, 16, 3, std::string(12, '\5'), row), bmp_file(1, 1, 8, 1, palette, "\1", 1),
        bmp_file(1, 1, 8, 1, palette, {"\0\2\0\x09\1\0\0\1", 8}, 1)})
    EXPECT_NE(image_refusal(file).find("damaged BMP file"), std::string::npos) << image_refusal(file);
  EXPECT_EQ(
      image_refusal(bmp_file(1, 1, 24, 4, "", row)),
      "x: a BMP file of 24 bits per pixel with compression 4; expected: 1 to 32 bits per pixel, plain, with "
      "masks, or runs of 4 or 8 bits");
  EXPECT_NE(image_refusal(bmp_file(100'000, 100'000, 8, 1, palette, row, 1)).find("at most"),
            std::string::npos);
}

}  // namespace
}  // namespace kindling
