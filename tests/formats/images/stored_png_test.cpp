#include "formats/images/stored_png.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <string>
#include <utility>

#include "formats/images/image_fixtures.h"
#include "kindling/formats/image.h"
#include "support/png_bytes.h"

namespace kindling {
namespace {

class StoredPng : public testing::Test {
 protected:
  void SetUp() override {
    if (!can_read_png()) GTEST_SKIP() << "built without libpng";
  }
};

constexpr int kWidth = 90, kHeight = 60;

// Values that compress well, of `row_bytes` in each row.
Pixels smooth_rows(int row_bytes) {
  Pixels values;
  for (int y = 0; y < kHeight; ++y)
    for (int x = 0; x < row_bytes; ++x) values.push_back(static_cast<std::uint8_t>(3 * y + x / 8));
  return values;
}

// The filters of the PNG specification: what they subtract from a byte.
int predicted(int filter, int left, int above, int above_left) {
  const int sum = left + above - above_left;
  const int to_left = std::abs(sum - left), to_above = std::abs(sum - above);
  const int to_above_left = std::abs(sum - above_left);
  switch (filter) {
    case 1:
      return left;
    case 2:
      return above;
    case 3:
      return (left + above) / 2;
    case 4:
      return to_left <= to_above && to_left <= to_above_left ? left
             : to_above <= to_above_left                     ? above
                                                             : above_left;
    default:
      return 0;
  }
}

// Row y has the filter (first + y) % 5.
std::string filtered(const Pixels& values, int row_bytes, int pixel_bytes, int first) {
  const auto value = [&](int y, int x) {
    return y < 0 || x < 0 ? 0 : int{values[static_cast<std::size_t>(y * row_bytes + x)]};
  };
  std::string rows;
  for (int y = 0; y < kHeight; ++y) {
    const int filter = (first + y) % 5;
    rows += static_cast<char>(filter);
    for (int x = 0; x < row_bytes; ++x)
      rows += static_cast<char>(value(y, x) - predicted(filter, value(y, x - pixel_bytes), value(y - 1, x),
                                                        value(y - 1, x - pixel_bytes)));
  }
  return rows;
}

std::string filtered_png(int depth, int color, int channels, int first, const std::string& before_rows = "") {
  const int bits = depth * channels, row_bytes = (kWidth * bits + 7) / 8;
  const std::string rows = filtered(smooth_rows(row_bytes), row_bytes, bits < 8 ? 1 : bits / 8, first);
  return png_bytes({.width = kWidth,
                    .height = kHeight,
                    .depth = depth,
                    .color = color,
                    .before_rows = before_rows,
                    .stream = compressed_zlib(rows)});
}

// The values of channels that are not alpha.
Pixels without_alpha(const Pixels& values, int channels) {
  Pixels kept;
  for (std::size_t i = 0; i < values.size(); ++i)
    if (channels % 2 != 0 || static_cast<int>(i) % channels != channels - 1) kept.push_back(values[i]);
  return kept;
}

TEST_F(StoredPng, AllFiltersAreUndone) {
  for (const auto& [color, channels] : {std::pair{0, 1}, {2, 3}, {4, 2}, {6, 4}})
    for (int first = 0; first < 5; ++first) {
      SCOPED_TRACE(testing::Message() << "color " << color << ", first filter " << first);
      const std::string png = filtered_png(8, color, channels, first);
      const std::string stored = store_png_pixels(png);
      EXPECT_GT(stored.size(), png.size());
      EXPECT_EQ(parse_image(png, "x").pixels, without_alpha(smooth_rows(kWidth * channels), channels));
    }
}

TEST_F(StoredPng, OtherDepthsAndPalettesAreRead) {
  const std::string bits = filtered_png(1, 0, 1, 0);
  EXPECT_NE(store_png_pixels(bits), "");
  Pixels expanded;
  const int bit_bytes = (kWidth + 7) / 8;
  const Pixels bit_rows = smooth_rows(bit_bytes);
  for (int y = 0; y < kHeight; ++y)
    for (int x = 0; x < kWidth; ++x)
      expanded.push_back(
          (bit_rows[static_cast<std::size_t>(y * bit_bytes + x / 8)] >> (7 - x % 8) & 1) != 0 ? 255 : 0);
  EXPECT_EQ(parse_image(bits, "x").pixels, expanded);

  // Both bytes of a value of 16 bits are equal here, so its scaled value is the same byte.
  const std::string wide = filtered_png(16, 2, 3, 0);
  EXPECT_NE(store_png_pixels(wide), "");
  Pixels high;
  const Pixels wide_rows = smooth_rows(kWidth * 6);
  for (std::size_t i = 0; i < wide_rows.size(); i += 2) high.push_back(wide_rows[i]);
  EXPECT_EQ(parse_image(wide, "x").pixels, high);

  std::string colors;
  for (int i = 0; i < 256; ++i) colors += {static_cast<char>(255 - i), 7, static_cast<char>(i)};
  const std::string palette = filtered_png(8, 3, 1, 0, png_chunk("PLTE", colors));
  EXPECT_NE(store_png_pixels(palette), "");
  EXPECT_EQ(parse_mask(palette, "x").pixels, smooth_rows(kWidth));
  Pixels rgb;
  for (const std::uint8_t value : smooth_rows(kWidth))
    rgb.insert(rgb.end(), {static_cast<std::uint8_t>(255 - value), 7, value});
  EXPECT_EQ(parse_image(palette, "x").pixels, rgb);
}

// A block that is stored has at most 65535 bytes.
TEST_F(StoredPng, SizesAroundABlockAreRead) {
  for (const std::uint32_t row_bytes : {65534U, 65535U, 65536U, 131070U, 131071U}) {
    const std::uint32_t width = row_bytes - 1;
    std::string rows(1, '\0');
    for (std::uint32_t x = 0; x < width; ++x) rows += static_cast<char>(x / 100);
    const std::string png = png_bytes({.width = width, .stream = compressed_zlib(rows)});
    EXPECT_GE(store_png_pixels(png).size(), row_bytes);
    EXPECT_EQ(parse_image(png, "x").pixels, Pixels(rows.begin() + 1, rows.end())) << row_bytes;
  }
}

TEST_F(StoredPng, ChunksOfPixelsAreJoined) {
  const std::string rows = filtered(smooth_rows(kWidth), kWidth, 1, 0), stream = compressed_zlib(rows);
  const PngFile file{.width = kWidth, .height = kHeight, .stream = stream.substr(20)};
  PngFile split = file;
  split.before_rows = png_chunk("IDAT", stream.substr(0, 20)) + png_chunk("IDAT", "");
  EXPECT_NE(store_png_pixels(png_bytes(split)), "");
  EXPECT_EQ(parse_image(png_bytes(split), "x").pixels, smooth_rows(kWidth));

  PngFile separated = file;
  separated.before_rows = png_chunk("IDAT", stream.substr(0, 20)) + png_chunk("tEXt", std::string("a\0b", 3));
  EXPECT_EQ(store_png_pixels(png_bytes(separated)), "");
  EXPECT_EQ(image_refusal(png_bytes(separated)),
            "x: damaged PNG file: Not enough image data; download or copy it again, or remove it");
}

class DamagedPng : public StoredPng {
 protected:
  static std::string refusal(const std::string& png) {
    EXPECT_EQ(store_png_pixels(png), "");
    return reason(png);
  }
  // Returns what libpng reports.
  static std::string reason(const std::string& png) {
    const std::string text = image_refusal(png), start = "x: damaged PNG file: ";
    return text.starts_with(start) ? text.substr(start.size(), text.find(';') - start.size()) : text;
  }
  static std::string png_of(const std::string& stream, int interlace = 0) {
    return png_bytes({.width = kWidth, .height = kHeight, .interlace = interlace, .stream = stream});
  }
  const std::string rows_ = filtered(smooth_rows(kWidth), kWidth, 1, 0);
  const std::string stream_ = compressed_zlib(rows_);
};

TEST_F(DamagedPng, ChecksumsAreVerified) {
  const std::string png = png_of(stream_);
  std::string changed = png;
  changed[png.find("IDAT") + 30] ^= 1;
  EXPECT_NE(refusal(changed), "(no error)");
  changed = png;
  changed[png.find("IDAT") + 4 + stream_.size()] ^= 1;
  EXPECT_EQ(refusal(changed), "IDAT: CRC error");
  changed = png;
  changed.back() ^= 1;
  EXPECT_EQ(refusal(changed), "IEND: CRC error");
  std::string stream = stream_;
  stream.back() ^= 1;
  EXPECT_EQ(refusal(png_of(stream)), "IDAT: incorrect data check");
}

TEST_F(DamagedPng, IncompleteFilesAreRefused) {
  const std::string png = png_of(stream_);
  for (std::size_t size = 8; size < png.size(); ++size)
    EXPECT_EQ(refusal(png.substr(0, size)), "the file ends too early") << size;
  EXPECT_EQ(refusal(png_of(stream_.substr(0, stream_.size() / 2))), "Not enough image data");
  EXPECT_EQ(refusal(png_of(compressed_zlib(rows_.substr(0, rows_.size() - 1)))), "Not enough image data");
}

TEST_F(DamagedPng, UnknownFiltersAreRefused) {
  std::string rows = rows_;
  rows[std::size_t{20} * (kWidth + 1)] = 5;
  const std::string png = png_of(compressed_zlib(rows));
  EXPECT_NE(store_png_pixels(png), "");
  EXPECT_EQ(reason(png), "bad adaptive filter value");
}

// The stream promises a window of 256 bytes, beyond which only zlib refuses references.
TEST_F(DamagedPng, WindowsOfTheStreamAreRespected) {
  std::string stream = stream_;
  stream[0] = '\x08', stream[1] = '\x1d';
  EXPECT_EQ(store_png_pixels(png_of(stream)), "");
}

TEST_F(DamagedPng, SizesThatTheStreamCannotHaveAreNotAllocated) {
  for (const std::uint32_t side : {20'000U, 0x7fffffffU, 0xffffffffU})
    EXPECT_EQ(store_png_pixels(png_bytes({.width = side, .height = side, .stream = stream_})), "") << side;
  EXPECT_EQ(image_refusal(png_bytes({.width = 20'000, .height = 10'000, .stream = stream_})),
            "x: the image has 20000 x 10000 pixels; expected: at most 100000000 pixels");
}

TEST_F(DamagedPng, LibpngReadsWhatCannotBeStored) {
  const std::string longer = png_of(compressed_zlib(rows_ + std::string(1000, '\0')));
  EXPECT_EQ(store_png_pixels(longer), "");
  EXPECT_EQ(parse_image(longer, "x").pixels, smooth_rows(kWidth));
  EXPECT_EQ(store_png_pixels(png_of(stream_, 1)), "");
  EXPECT_EQ(store_png_pixels(png_bytes({.width = 2, .rows = std::string(3, '\0')})), "");
}

}  // namespace
}  // namespace kindling
