#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "cli/commands/on_terminal.h"
#include "cli/commands/program_run.h"
#include "cli/data/image_samples.h"
#include "kindling/config/document.h"
#include "kindling/data/image_folder.h"
#include "kindling/formats/image.h"
#include "support/image_files.h"
#include "support/scratch.h"

namespace kindling {
namespace {

constexpr const char* kIdxData = "[data]\nname = \"idx\"\nimages = \"images\"\nlabels = \"labels\"\n";
constexpr const char* kRandomFlip =
    "[[data.train_transforms]]\nname = \"random_horizontal_flip\"\n"
    "[[data.train_transforms]]\nname = \"random_crop\"\nsize = [4, 4]\npadding = 2\n";

// Five images of 4 x 4 pixels and five labels.
void write_idx(const Scratch& scratch) {
  std::string images{0, 0, 8, 3, 0, 0, 0, 5, 0, 0, 0, 4, 0, 0, 0, 4}, labels{0, 0, 8, 1, 0, 0, 0, 5};
  for (int i = 0; i < 80; ++i) images += static_cast<char>(3 * i);
  for (int i = 0; i < 5; ++i) labels += static_cast<char>(i % 2);
  std::ofstream(scratch / "images", std::ios::binary) << images;
  std::ofstream(scratch / "labels", std::ios::binary) << labels;
}

// The part of an image of 1 channel.
std::vector<std::uint8_t> cut_out(const Image& image, std::int64_t top, std::int64_t left,
                                  std::int64_t side) {
  std::vector<std::uint8_t> pixels;
  for (std::int64_t y = top; y < top + side; ++y)
    for (std::int64_t x = left; x < left + side; ++x)
      pixels.push_back(image.pixels[static_cast<std::size_t>(y * image.width + x)]);
  return pixels;
}

RunConfig config_of(const std::filesystem::path& file, const Registry& registry) {
  return RunConfig(ConfigDocument::load(file), registry, "x", ConfigUse::data);
}

TEST(DataShow, DrawsImagesOnlyOnRequestOrOnATerminal) {
  const ProgramRun piped = run_program({"data", "show", "digits"});
  EXPECT_EQ(piped.exit_code, 0);
  EXPECT_EQ(piped.out.find('\x1b'), std::string::npos);
  const ProgramRun never = run_program({"data", "show", "digits", "--color", "never"});
  EXPECT_EQ(never.out, piped.out);
  const ProgramRun drawn = run_program({"data", "show", "digits", "--samples", "2", "--color", "always"});
  EXPECT_EQ(drawn.exit_code, 0) << drawn.err;
  EXPECT_EQ(drawn.out.find("0: 0              1: 3\n\x1b[38;2;0;0;0;48;2;0;0;0m▀"), 0u) << drawn.out;
  EXPECT_EQ(drawn.out.find("above:"), std::string::npos);
}

TEST(DataShow, DrawsOnATerminalUnlessColorsAreNotWanted) {
  const OnTerminal drawn = run_on_terminal({"data", "show", "digits", "--samples", "1"});
  EXPECT_EQ(drawn.exit_code, 0);
  EXPECT_NE(drawn.screen.find("\x1b[38;2;"), std::string::npos) << drawn.screen;
  const OnTerminal plain =
      run_on_terminal({"data", "show", "digits", "--samples", "1"}, {.variable = "NO_COLOR", .value = "1"});
  EXPECT_EQ(plain.screen.find('\x1b'), std::string::npos) << plain.screen;
  EXPECT_NE(plain.screen.find("sample   tensor   values"), std::string::npos) << plain.screen;
}

TEST(DataShow, PrintsValuesOfDataThatAreNotImages) {
  const ProgramRun run = run_program({"data", "show", "synthetic_regression", "--color", "always"});
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_EQ(run.out.find("sample   tensor   values"), 0u);
  const Scratch scratch;
  const ProgramRun png =
      run_program({"data", "show", "synthetic_regression", "--png", (scratch / "x.png").string()});
  EXPECT_EQ(png.exit_code, 3);
  EXPECT_EQ(
      png.err,
      "kindling data show --png: the samples are not images; expected: images [samples, 1 or 3, height, "
      "width]\n");
  const ProgramRun jpeg = run_program({"data", "show", "digits", "--png", (scratch / "x.jpg").string()});
  EXPECT_EQ(jpeg.exit_code, 2);
  EXPECT_EQ(jpeg.err, "--png " + (scratch / "x.jpg").string() +
                          ": the extension is '.jpg'; expected: a file that ends with .png\n");
  EXPECT_FALSE(std::filesystem::exists(scratch / "x.jpg"));
}

TEST(DataShow, NamesSeveralLabelsOfAnImage) {
  if (!can_read_png()) GTEST_SKIP() << "built without libpng";
  const Scratch scratch;
  write_day_and_night(scratch / "images", 1);
  std::ofstream(scratch / "files.csv")
      << "file,label\nimages/day/100.png,day|sky\nimages/night/100.png,night\n";
  std::ofstream(scratch / "c.toml")
      << "[data]\nname = \"image_folder\"\nlist = \"files.csv\"\nlabel_separator = \"|\"\n";
  Registry registry;
  register_builtin(registry);
  EXPECT_EQ(image_samples(config_of(scratch / "c.toml", registry), 2).value().captions,
            (std::vector<std::string>{"0: day, sky", "1: night"}));
  const ProgramRun run = run_program({"data", "show", scratch / "c.toml"});
  EXPECT_NE(run.out.find("1   day, sky\n"), std::string::npos) << run.out << run.err;
}

TEST(DataShow, NamesTheFractionsOfTheClassesInMasks) {
  if (!can_read_png()) GTEST_SKIP() << "built without libpng";
  const Scratch scratch;
  write_png(scratch / "images/a.png", 10, 20);
  Image mask{.width = 20, .height = 10, .channels = 1, .pixels = std::vector<std::uint8_t>(200, 0)};
  std::fill_n(mask.pixels.begin(), 40, 1);
  std::fill_n(mask.pixels.begin() + 40, 10, 255);
  mask.pixels[199] = 2;
  std::filesystem::create_directories(scratch / "masks");
  write_mask(scratch / "masks/a.png", mask);
  std::ofstream(scratch / "c.toml") << "[data]\nname = \"segmentation_folder\"\nroot = \".\"\n"
                                       "classes = [\"background\", \"cell\", \"border\"]\n";
  // 149, 40, 10 and 1 of 200 pixels.
  const std::string fractions = "background 75 %, cell 20 %, ignored 5 %, border < 1 %";
  Registry registry;
  register_builtin(registry);
  EXPECT_EQ(image_samples(config_of(scratch / "c.toml", registry), 1).value().captions,
            (std::vector<std::string>{"0: " + fractions}));
  const ProgramRun run = run_program({"data", "show", scratch / "c.toml"});
  EXPECT_NE(run.out.find("1   " + fractions + "\n"), std::string::npos) << run.out << run.err;
}

TEST(DataShow, WritesThePixelsOfTheSamplesAsAPngFile) {
  if (!can_read_png()) GTEST_SKIP() << "built without libpng";
  const Scratch scratch;
  write_idx(scratch);
  write_text(scratch / "a.toml", kIdxData);
  const std::string png = (scratch / "a.png").string();
  const ProgramRun run =
      run_program({"data", "show", (scratch / "a.toml").string(), "--samples", "3", "--png", png});
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_NE(run.out.find("wrote " + png + "\n"), std::string::npos);
  const Image grid = read_image(png);
  ASSERT_EQ(grid.width, 3 * (4 + kGridGap) + kGridGap);
  ASSERT_EQ(grid.height, 4 + 2 * kGridGap);
  ASSERT_EQ(grid.channels, 1);
  for (int sample = 0; sample < 3; ++sample) {
    std::vector<std::uint8_t> wanted;
    for (int i = 0; i < 16; ++i) wanted.push_back(static_cast<std::uint8_t>(3 * (16 * sample + i)));
    EXPECT_EQ(cut_out(grid, kGridGap, kGridGap + sample * (4 + kGridGap), 4), wanted);
  }
}

// Sample i of the first epoch as a fit sees it, whatever the order.
at::Tensor trained_image(DataModule& data, std::int64_t sample) {
  const auto loader = data.train_dataloader();
  DataLoader::Cursor cursor(*loader);
  cursor.seek(0);
  for (Batch batch; cursor.next(batch);) {
    const at::Tensor at_sample = cursor.indices().eq(sample).nonzero();
    if (at_sample.numel() > 0)
      return data.on_after_batch_transfer(batch, Stage::train)[0][at_sample.item<std::int64_t>()];
  }
  return {};
}

TEST(DataShow, TransformedSamplesAreThoseOfTheFirstEpochOfAFit) {
  const Scratch scratch;
  write_idx(scratch);
  write_text(scratch / "a.toml", std::string("seed = 5\n") + kIdxData + "batch_size = 2\n" + kRandomFlip);
  Registry registry;
  register_builtin(registry);
  const RunConfig config = config_of(scratch / "a.toml", registry);
  const auto samples = image_samples(config, 5);
  ASSERT_TRUE(samples);
  ASSERT_EQ(samples->after.size(), 5u);
  EXPECT_EQ(samples->captions[1], "1: 1");
  const auto data = config.make_data();
  int num_changed = 0;
  for (std::size_t i = 0; i < 5; ++i) {
    const at::Tensor image = trained_image(*data, static_cast<std::int64_t>(i));
    ASSERT_TRUE(image.defined());
    const at::Tensor bytes = image.mul(255).round().to(at::kByte).flatten().contiguous();
    const std::uint8_t* const first = bytes.const_data_ptr<std::uint8_t>();
    EXPECT_EQ(samples->after[i].pixels, std::vector<std::uint8_t>(first, first + bytes.numel())) << i;
    num_changed += samples->after[i].pixels != samples->before[i].pixels ? 1 : 0;
  }
  EXPECT_GT(num_changed, 0);
}

TEST(DataShow, ValuesOutsideOfZeroToOneAreScaledAndReported) {
  const Scratch scratch;
  write_idx(scratch);
  write_text(scratch / "a.toml", std::string(kIdxData) +
                                     "[[data.train_transforms]]\nname = \"normalize\"\nmean = [0.5]\nstd = "
                                     "[0.25]\n");
  Registry registry;
  register_builtin(registry);
  const auto samples = image_samples(config_of(scratch / "a.toml", registry), 5);
  ASSERT_TRUE(samples);
  EXPECT_EQ(samples->notes,
            (std::vector<std::string>{"after the transforms: the values -2 to 1.718 are shown as "
                                      "black to white"}));  // (237 / 255 - 0.5) / 0.25
  EXPECT_EQ(samples->after.front().pixels.front(), 0);
  EXPECT_EQ(samples->after.back().pixels.back(), 255);
}

}  // namespace
}  // namespace kindling
