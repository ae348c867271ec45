#include "kindling/formats/image.h"

#include <gtest/gtest.h>

#include <array>
#include <filesystem>
#include <functional>
#include <iterator>
#include <string>
#include <vector>

#include "formats/images/image_fixtures.h"
#include "kindling/base/error.h"
#include "kindling/base/file.h"
#include "support/png_bytes.h"
#include "support/scratch.h"

namespace kindling {
namespace {

class PngImages : public testing::Test {
 protected:
  void SetUp() override {
    if (!can_read_png()) GTEST_SKIP() << "built without libpng";
  }
  static void expect_png(const PngFile& file, std::int64_t channels, const Pixels& pixels,
                         std::int64_t requested = 0) {
    const Image image = parse_image(png_bytes(file), "x.png", {.channels = requested});
    EXPECT_EQ(image.width, file.width);
    EXPECT_EQ(image.height, file.height);
    EXPECT_EQ(image.channels, channels);
    EXPECT_EQ(image.pixels, pixels);
  }
};

std::string png_row(std::initializer_list<int> values) {
  std::string row(1, '\0');
  for (const int value : values) row += static_cast<char>(value);
  return row;
}

TEST_F(PngImages, GreyAndColorKeepTheirChannels) {
  const PngFile grey{.width = 2, .height = 2, .rows = png_row({0, 100}) + png_row({200, 255})};
  expect_png(grey, 1, {0, 100, 200, 255});
  expect_png(grey, 3, {0, 0, 0, 100, 100, 100, 200, 200, 200, 255, 255, 255}, 3);
  const PngFile rgb{.width = 2, .color = 2, .rows = png_row({255, 0, 0, 10, 20, 30})};
  expect_png(rgb, 3, {255, 0, 0, 10, 20, 30});
  expect_png(rgb, 1, {76, 18}, 1);  // 0.299 · 255 = 76.2; 2.99 + 11.74 + 3.42 = 18.15
}

TEST_F(PngImages, AlphaIsDropped) {
  expect_png({.width = 2, .color = 4, .rows = png_row({7, 0, 9, 255})}, 1, {7, 9});
  expect_png({.width = 2, .color = 6, .rows = png_row({1, 2, 3, 0, 4, 5, 6, 128})}, 3, {1, 2, 3, 4, 5, 6});
}

TEST_F(PngImages, SixteenBitsAreScaledToEight) {
  // 0x1234 · 255 / 65535 = 18.13, 0x8100 · 255 / 65535 = 128.5 - 0.001.
  expect_png({.width = 3, .depth = 16, .rows = png_row({0x12, 0x34, 0x81, 0x00, 0xff, 0xff})}, 1,
             {18, 128, 255});
  expect_png({.depth = 16, .color = 2, .rows = png_row({0, 0, 0xff, 0xff, 0x40, 0x40})}, 3, {0, 255, 64});
}

TEST_F(PngImages, FewerBitsAndPalettesAreExpanded) {
  expect_png({.width = 4, .depth = 1, .rows = png_row({0b01010000})}, 1, {0, 255, 0, 255});
  const std::string palette = png_chunk("PLTE", std::string("\x0a\x14\x1e\x01\x02\x03", 6));
  const PngFile colors{.width = 2, .color = 3, .rows = png_row({1, 0}), .before_rows = palette};
  expect_png(colors, 3, {1, 2, 3, 10, 20, 30});
  PngFile transparent = colors;
  transparent.before_rows += png_chunk("tRNS", std::string(1, '\0'));
  expect_png(transparent, 3, {1, 2, 3, 10, 20, 30});
}

TEST_F(PngImages, InterlacedImagesAreRead) {
  // Adam7 of 2 x 2: pass 1 has (0, 0), pass 6 (1, 0), pass 7 the second row.
  expect_png({.width = 2, .height = 2, .rows = png_row({1}) + png_row({2}) + png_row({3, 4}), .interlace = 1},
             1, {1, 2, 3, 4});
}

TEST_F(PngImages, DamageIsRefused) {
  const std::string whole =
      png_bytes({.width = 2, .height = 2, .rows = png_row({0, 100}) + png_row({200, 255})});
  EXPECT_EQ(image_refusal(whole.substr(0, 20)),
            "x: damaged PNG file: the file ends too early; download or copy it again, or remove it");
  for (std::size_t size = 8; size < whole.size(); ++size)
    EXPECT_NE(image_refusal(whole.substr(0, size)), "(no error)") << size;
  std::string changed = whole;
  changed[20] ^= 1;
  EXPECT_EQ(image_refusal(changed),
            "x: damaged PNG file: IHDR: CRC error; download or copy it again, or remove it");
}

TEST_F(PngImages, SizesAreCheckedBeforeAllocation) {
  const std::string large = png_bytes({.width = 20'000, .height = 10'000, .rows = png_row({0})});
  EXPECT_EQ(image_refusal(large),
            "x: the image has 20000 x 10000 pixels; expected: at most 100000000 pixels");
  EXPECT_EQ(
      image_refusal(large, {.max_pixels = 1'000'000'000}),
      "x: the header promises 20000 x 10000 pixels, more than a file of 70 bytes can hold; download or copy "
      "it again, or remove it");
}

TEST_F(PngImages, AreWrittenAndReadAgain) {
  const Scratch scratch;
  for (const std::int64_t channels : {1, 3}) {
    Image image{.width = 5, .height = 3, .channels = channels, .pixels = {}};
    for (std::int64_t i = 0; i < 15 * channels; ++i)
      image.pixels.push_back(static_cast<std::uint8_t>(17 * i));
    write_png(scratch / "a.png", image);
    const Image read = read_image(scratch / "a.png");
    EXPECT_EQ(read.width, 5);
    EXPECT_EQ(read.height, 3);
    EXPECT_EQ(read.channels, channels);
    EXPECT_EQ(read.pixels, image.pixels);
  }
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(scratch.folder()), {}),
            1);  // no temporary file
}

TEST_F(PngImages, AreNotWrittenWithoutAllPixels) {
  const Scratch scratch;
  const std::string path = (scratch / "a.png").string();
  EXPECT_EQ(
      error_text<ConfigError>(
          [&] { write_png(path, {.width = 2, .height = 2, .channels = 1, .pixels = {1}}); }),
      path +
          ": an image of height 2, width 2 and 1 channels with 1 values; expected: 1 or 3 channels and a "
          "value per pixel and channel");
  EXPECT_THROW(write_png(path, {.width = 1, .height = 2, .channels = 2, .pixels = {1, 2, 3, 4}}),
               ConfigError);
  EXPECT_THROW(write_png(path, {}), ConfigError);
  EXPECT_THROW(write_png(scratch / "no/a.png", {.width = 1, .height = 1, .channels = 1, .pixels = {1}}),
               Error);
}

class JpegImages : public testing::Test {
 protected:
  void SetUp() override {
    if (!can_read_jpeg()) GTEST_SKIP() << "built without libjpeg-turbo";
  }
};

using Color = std::array<double, 3>;

// Compares with the colors that `expected(x, y)` returns. JPEG changes smooth images of quality 95 by little.
template <class Expected>
void expect_colors(const Image& image, std::int64_t width, std::int64_t height, Expected expected,
                   int tolerance = 6) {
  ASSERT_EQ(image.width, width);
  ASSERT_EQ(image.height, height);
  ASSERT_EQ(image.pixels.size(), static_cast<std::size_t>(width * height * image.channels));
  for (std::int64_t y = 0; y < height; ++y)
    for (std::int64_t x = 0; x < width; ++x) {
      const Color color = expected(static_cast<double>(x), static_cast<double>(y));
      for (std::int64_t c = 0; c < image.channels; ++c)
        ASSERT_NEAR(image.pixels[static_cast<std::size_t>((y * width + x) * image.channels + c)],
                    color[static_cast<std::size_t>(c)], tolerance)
            << x << " " << y << " " << c;
    }
}

Color gradient_color(double x, double y) { return {10 * x, 15 * y, 100}; }

TEST_F(JpegImages, AreReadInColorAndGrey) {
  for (const char* name : {"gradient.jpg", "progressive.jpg"}) {
    const Image image = read_image(kImageFixtures / name);
    EXPECT_EQ(image.channels, 3);
    expect_colors(image, 24, 16, gradient_color);
    const Image grey = read_image(kImageFixtures / name, {.channels = 1});
    EXPECT_EQ(grey.channels, 1);
    expect_colors(grey, 24, 16, [](double x, double y) { return Color{2.99 * x + 8.805 * y + 11.4}; });
  }
  const Image grey = read_image(kImageFixtures / "grey.jpg");
  EXPECT_EQ(grey.channels, 1);
  expect_colors(grey, 24, 16, [](double x, double) { return Color{10 * x}; });
  const Image color = read_image(kImageFixtures / "grey.jpg", {.channels = 3});
  expect_colors(color, 24, 16, [](double x, double) { return Color{10 * x, 10 * x, 10 * x}; });
}

TEST_F(JpegImages, CmykBecomesRgb) {
  expect_colors(read_image(kImageFixtures / "cmyk.jpg"), 24, 16, gradient_color, 10);
  EXPECT_EQ(read_image(kImageFixtures / "cmyk.jpg", {.channels = 1}).channels, 1);
  std::array<std::int64_t, 3> sums{};
  const Image image = read_image(kImageFixtures / "cmyk.jpg");
  for (std::size_t i = 0; i < image.pixels.size(); ++i) sums[i % 3] += image.pixels[i];
  EXPECT_EQ(sums, (std::array<std::int64_t, 3>{44160, 43200, 38400}));  // Pillow 13's convert("RGB")
}

// The brightness in the file may differ from it by dozens where a color is rounded.
TEST_F(JpegImages, AreGreyByTheirColors) {
  const Image color = read_image(kImageFixtures / "gradient.jpg");
  Pixels grey;
  for (std::size_t i = 0; i < color.pixels.size(); i += 3)
    grey.push_back(static_cast<std::uint8_t>(
        (19595 * color.pixels[i] + 38470 * color.pixels[i + 1] + 7471 * color.pixels[i + 2] + 32768) /
        65536));
  EXPECT_EQ(read_image(kImageFixtures / "gradient.jpg", {.channels = 1}).pixels, grey);
}

// Puts an EXIF block with an orientation after the start of the file.
std::string with_orientation(const std::string& jpeg, int orientation, bool is_big_endian) {
  std::string exif("Exif\0\0", 6);
  if (is_big_endian)
    exif += std::string("MM\0\x2a\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0", 19) +
            static_cast<char>(orientation) + std::string(6, '\0');
  else
    exif += std::string("II\x2a\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0", 18) +
            static_cast<char>(orientation) + std::string(7, '\0');
  return jpeg.substr(0, 2) + std::string("\xff\xe1\0", 3) + static_cast<char>(exif.size() + 2) + exif +
         jpeg.substr(2);
}

TEST_F(JpegImages, AreTurnedUprightByTheirOrientation) {
  const std::string jpeg = image_fixture("gradient.jpg");
  // Where the EXIF standard puts row 0 and column 0: x and y of the file for x and y of the result.
  const std::function<Color(double, double)> source[8] = {
      [](double x, double y) { return gradient_color(x, y); },
      [](double x, double y) { return gradient_color(23 - x, y); },
      [](double x, double y) { return gradient_color(23 - x, 15 - y); },
      [](double x, double y) { return gradient_color(x, 15 - y); },
      [](double x, double y) { return gradient_color(y, x); },
      [](double x, double y) { return gradient_color(y, 15 - x); },
      [](double x, double y) { return gradient_color(23 - y, 15 - x); },
      [](double x, double y) { return gradient_color(23 - y, x); }};
  for (int orientation = 1; orientation <= 8; ++orientation)
    for (const bool is_big_endian : {false, true}) {
      SCOPED_TRACE(orientation);
      const bool is_turned = orientation >= 5;
      expect_colors(parse_image(with_orientation(jpeg, orientation, is_big_endian), "x"), is_turned ? 16 : 24,
                    is_turned ? 24 : 16, source[orientation - 1]);
    }
  expect_colors(parse_image(with_orientation(jpeg, 9, false), "x"), 24, 16, gradient_color);
}

TEST_F(JpegImages, AreDecodedSmallerDownToTheWantedSize) {
  const auto size = [&](std::int64_t height, std::int64_t width) {
    const Image image = read_image(kImageFixtures / "large.jpg", {.wanted_size = {height, width}});
    return std::array{image.height, image.width};
  };
  EXPECT_EQ(size(6, 8), (std::array<std::int64_t, 2>{6, 8}));
  EXPECT_EQ(size(7, 5), (std::array<std::int64_t, 2>{12, 16}));
  EXPECT_EQ(size(13, 16), (std::array<std::int64_t, 2>{24, 32}));
  EXPECT_EQ(size(25, 1), (std::array<std::int64_t, 2>{48, 64}));
  EXPECT_EQ(size(100, 100), (std::array<std::int64_t, 2>{48, 64}));
  const Image quarter = read_image(kImageFixtures / "large.jpg", {.wanted_size = {12, 16}});
  // Each pixel is the mean of 4 x 4.
  expect_colors(quarter, 16, 12, [](double x, double y) {
    return Color{3 * (4 * x + 1.5), 5 * (4 * y + 1.5), 100};
  });
}

TEST_F(JpegImages, WantedSizeMeansTheUprightImage) {
  const std::string turned = with_orientation(image_fixture("large.jpg"), 6, false);
  const Image image = parse_image(turned, "x", {.wanted_size = {16, 12}});
  EXPECT_EQ(image.height, 16);
  EXPECT_EQ(image.width, 12);
}

TEST_F(JpegImages, DamageIsRefused) {
  const std::string whole = image_fixture("gradient.jpg");
  EXPECT_EQ(image_refusal(whole.substr(0, whole.size() - 40)),
            "x: damaged JPEG file: Premature end of JPEG file; download or copy it again, or remove it");
  for (std::size_t size = 3; size + 2 < whole.size(); size += 7)
    EXPECT_NE(image_refusal(whole.substr(0, size)), "(no error)") << size;
}

TEST_F(JpegImages, SizesAreCheckedBeforeAllocation) {
  std::string large = image_fixture("gradient.jpg");
  const std::size_t frame = large.find("\xff\xc0");
  large.replace(frame + 5, 4, "\x7f\xff\x7f\xff");
  EXPECT_EQ(image_refusal(large),
            "x: the image has 32767 x 32767 pixels; expected: at most 100000000 pixels");
  EXPECT_EQ(image_refusal(large, {.max_pixels = std::int64_t{1} << 40}),
            "x: the header promises 32767 x 32767 pixels, more than a file of " +
                std::to_string(large.size()) + " bytes can hold; download or copy it again, or remove it");
}

TEST(Images, FormatsAreKnownByTheirFirstBytes) {
  EXPECT_EQ(image_format(png_bytes({})), "PNG");
  EXPECT_EQ(image_format("\xff\xd8\xff\xe1"), "JPEG");
  EXPECT_EQ(image_format("GIF89a"), "GIF");
  EXPECT_EQ(image_format({"\0\0\0\x1c"
                          "ftypavif",
                          12}),
            "AVIF");
  EXPECT_EQ(image_format("BMW and other words that are a text"), "");
  EXPECT_EQ(image_format(""), "");
  EXPECT_TRUE(can_read_image("BMP"));
  EXPECT_FALSE(can_read_image("GIF"));
  EXPECT_FALSE(can_read_image(""));
}

TEST(Images, OtherFilesAreRefused) {
  const std::string wanted = "; expected: a PNG, JPEG, BMP, WebP or TIFF image";
  EXPECT_EQ(image_refusal("GIF89a"), "x: Kindling does not read the format GIF" + wanted);
  EXPECT_EQ(image_refusal("text"), "x: the file is not an image" + wanted);
  EXPECT_EQ(image_refusal(""), "x: the file is empty" + wanted);
  EXPECT_THROW(parse_image("", "x", {.channels = 2}), ConfigError);
  const Scratch scratch;
  EXPECT_NE(error_text<DataError>([&] { read_image(scratch / "nope.png"); }).find("nope.png"),
            std::string::npos);
}

}  // namespace
}  // namespace kindling
