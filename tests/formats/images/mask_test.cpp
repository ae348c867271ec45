#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "kindling/base/error.h"
#include "kindling/base/file.h"
#include "kindling/formats/image.h"
#include "support/png_bytes.h"
#include "support/scratch.h"

namespace kindling {
namespace {

using Values = std::vector<std::uint8_t>;

class Masks : public testing::Test {
 protected:
  void SetUp() override {
    if (!can_read_png()) GTEST_SKIP() << "built without libpng";
  }
  static Values values_of(const PngFile& file) {
    const Image mask = parse_mask(png_bytes(file), "x.png");
    EXPECT_EQ(mask.channels, 1);
    EXPECT_EQ(mask.width, file.width);
    EXPECT_EQ(mask.height, file.height);
    return mask.pixels;
  }
  static std::string refusal(const std::string& bytes) {
    return error_text<DataError>([&] { parse_mask(bytes, "x.png"); });
  }
};

std::string row_of(std::initializer_list<int> values) {
  std::string row(1, '\0');
  for (const int value : values) row += static_cast<char>(value);
  return row;
}

TEST_F(Masks, OfPalettesAreIndices) {
  // Red, then black twice, with a transparent color: neither changes an index, nor does one beyond the
  // palette.
  const std::string palette =
      png_chunk("PLTE", std::string("\xff\0\0\0\0\0\0\0\0", 9)) + png_chunk("tRNS", std::string(1, '\0'));
  EXPECT_EQ(values_of({.width = 4, .color = 3, .rows = row_of({2, 0, 1, 255}), .before_rows = palette}),
            (Values{2, 0, 1, 255}));
  EXPECT_EQ(
      values_of(
          {.width = 3, .depth = 2, .color = 3, .rows = row_of({0b10'01'00'00}), .before_rows = palette}),
      (Values{2, 1, 0}));
  EXPECT_EQ(
      values_of({.width = 2, .depth = 1, .color = 3, .rows = row_of({0b01'000000}), .before_rows = palette}),
      (Values{0, 1}));
}

TEST_F(Masks, OfGreyFilesAreTheirValues) {
  EXPECT_EQ(values_of({.width = 3, .rows = row_of({0, 7, 255})}), (Values{0, 7, 255}));
  EXPECT_EQ(values_of({.width = 2, .depth = 4, .rows = row_of({0x3f})}), (Values{3, 15}));  // not 51, 255
  EXPECT_EQ(values_of({.width = 2, .depth = 1, .rows = row_of({0b10'000000})}), (Values{1, 0}));
  EXPECT_EQ(values_of({.width = 2, .color = 4, .rows = row_of({5, 0, 6, 255})}), (Values{5, 6}));
  EXPECT_EQ(
      values_of(
          {.width = 2, .height = 2, .depth = 16, .rows = row_of({0, 9, 0, 255}) + row_of({0, 1, 0, 2})}),
      (Values{9, 255, 1, 2}));
}

TEST_F(Masks, OfOtherValuesAreRefused) {
  EXPECT_EQ(refusal(png_bytes({.depth = 16, .rows = row_of({1, 2})})),
            "x.png: the mask has 16 bits per pixel, and the value 258; expected: values up to 255");
  EXPECT_EQ(refusal(png_bytes({.color = 2, .rows = row_of({1, 1, 1})})),
            "x.png: the mask has colors (RGB); expected: a class number per pixel: a grey PNG file, or one "
            "with a palette; replace each color by its class number, for example with Pillow: "
            "Image.fromarray(numbers.astype(\"uint8\")).save(\"mask.png\")");
  EXPECT_EQ(refusal("\xff\xd8\xff"),
            "x.png: it is a JPEG file; expected: a mask as a PNG file; JPEG changes the values of pixels: "
            "save the original mask as PNG, a converted file keeps its errors");
  EXPECT_EQ(refusal("GIF89a"),
            "x.png: it is a GIF file; expected: a mask as a PNG file; convert it to PNG, which keeps all "
            "values");
  EXPECT_EQ(refusal("").substr(0, 31), "x.png: the file is not an image");
  EXPECT_NE(refusal(png_bytes({.width = 2, .rows = row_of({1})})).find("damaged PNG file"),
            std::string::npos);
}

TEST_F(Masks, AreWrittenWithThePaletteOfPascalVoc) {
  const Scratch scratch;
  write_mask(scratch / "m.png", {.width = 3, .height = 2, .channels = 1, .pixels = {0, 1, 2, 15, 20, 255}});
  EXPECT_EQ(read_mask(scratch / "m.png").pixels, (Values{0, 1, 2, 15, 20, 255}));
  // Its classes background, aeroplane, bicycle, person and tvmonitor, and the border (224, 224, 192).
  EXPECT_EQ(read_image(scratch / "m.png").pixels,
            (Values{0, 0, 0, 128, 0, 0, 0, 128, 0, 192, 128, 128, 0, 64, 128, 224, 224, 192}));
  EXPECT_THROW(write_mask(scratch / "m.png", {.width = 1, .height = 1, .channels = 3, .pixels = {0, 0, 0}}),
               ConfigError);
}

}  // namespace
}  // namespace kindling
