#include "cli/data/image_text.h"

#include <gtest/gtest.h>

namespace kindling {
namespace {

TEST(HalfBlocks, ShowTwoRowsPerLine) {
  const Image image{.width = 2,
                    .height = 3,
                    .channels = 3,
                    .pixels = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 255, 0, 0, 255, 0, 0}};
  EXPECT_EQ(half_block_lines(image),
            (std::vector<std::string>{"\x1b[38;2;1;2;3;48;2;7;8;9m▀\x1b[38;2;4;5;6;48;2;10;11;12m▀\x1b[0m",
                                      "\x1b[38;2;255;0;0;49m▀▀\x1b[0m"}));
}

TEST(HalfBlocks, GreyPixelsHaveEqualColors) {
  const Image image{.width = 1, .height = 2, .channels = 1, .pixels = {0, 128}};
  EXPECT_EQ(half_block_lines(image), (std::vector<std::string>{"\x1b[38;2;0;0;0;48;2;128;128;128m▀\x1b[0m"}));
}

TEST(FittedImage, EnlargesSmallAndAveragesLargeImages) {
  const Image small{.width = 8, .height = 4, .channels = 1, .pixels = std::vector<std::uint8_t>(32, 7)};
  EXPECT_EQ(fitted_image(small, 80).width, 16);
  EXPECT_EQ(fitted_image(small, 80).height, 8);
  EXPECT_EQ(fitted_image(small, 10).width, 8);
  Image large{.width = 200, .height = 100, .channels = 1, .pixels = std::vector<std::uint8_t>(20000, 0)};
  for (std::size_t i = 0; i < large.pixels.size(); i += 2) large.pixels[i] = 100;
  const Image fitted = fitted_image(large, 50);
  EXPECT_EQ(fitted.width, 50);
  EXPECT_EQ(fitted.height, 25);
  EXPECT_EQ(fitted.pixels, std::vector<std::uint8_t>(1250, 50));  // half of the columns are 100
}

TEST(SamplesText, PutsSamplesNextToEachOther) {
  const Image dot{.width = 16, .height = 2, .channels = 1, .pixels = std::vector<std::uint8_t>(32, 9)};
  const ImageSamples samples{
      .captions = {"0: cat", "1: dog", "2: cat"}, .before = {dot, dot, dot}, .after = {}, .notes = {}};
  std::string line = "\x1b[38;2;9;9;9;48;2;9;9;9m";
  for (int i = 0; i < 16; ++i) line += "▀";
  line += "\x1b[0m";
  EXPECT_EQ(samples_text(samples, 40),
            "0: cat            1: dog\n" + line + "  " + line + "\n\n2: cat\n" + line + "\n");
}

TEST(ImageGrid, PutsTransformedSamplesBelow) {
  const Image a{.width = 2, .height = 1, .channels = 1, .pixels = {1, 2}};
  const Image b{.width = 1, .height = 1, .channels = 1, .pixels = {3}};
  const ImageSamples samples{.captions = {"0", "1"}, .before = {a, a}, .after = {b, b}, .notes = {}};
  const Image grid = image_grid(samples);
  EXPECT_EQ(grid.width, 2 * (2 + kGridGap) + kGridGap);
  EXPECT_EQ(grid.height, 2 * (1 + kGridGap) + kGridGap);
  const auto at = [&](std::int64_t y, std::int64_t x) {
    return int{grid.pixels[static_cast<std::size_t>(y * grid.width + x)]};
  };
  EXPECT_EQ(at(2, 2), 1);
  EXPECT_EQ(at(2, 3), 2);
  EXPECT_EQ(at(2, 4), 255);
  EXPECT_EQ(at(2, 6), 1);
  EXPECT_EQ(at(5, 2), 3);
  EXPECT_EQ(at(5, 3), 255);
  EXPECT_EQ(at(5, 6), 3);
}

}  // namespace
}  // namespace kindling
