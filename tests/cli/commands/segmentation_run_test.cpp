// A run on images and masks, from a config to predicted masks.
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/commands/program_run.h"
#include "kindling/base/file.h"
#include "kindling/formats/image.h"
#include "support/scratch.h"

namespace kindling {
namespace {

namespace fs = std::filesystem;

class SegmentationRun : public testing::Test {
 protected:
  void SetUp() override {
    if (!can_read_png()) GTEST_SKIP() << "built without libpng";
    for (const char* folder : {"images", "masks"}) fs::create_directories(scratch_ / "bars" / folder);
    for (int i = 0; i < 16; ++i) write_bar(i);
    write_text(
        scratch_ / "bars.toml",
        "[model]\nname = \"unet\"\nin_channels = 1\nwidth = 4\ndepth = 2\n"
        "metrics = [\"iou_macro\", \"dice_per_class\"]\nclass_weights = \"balanced\"\n"
        "[data]\nname = \"segmentation_folder\"\nroot = \"bars\"\nval_fraction = 0.25\nbatch_size = 4\n"
        "[[data.train_transforms]]\nname = \"random_crop\"\nsize = [16, 16]\npadding = 2\n"
        "[[data.train_transforms]]\nname = \"random_horizontal_flip\"\n"
        "[optimizer]\nname = \"adam\"\nlr = 0.02\n[trainer]\nmax_epochs = 8\nnum_threads = 1\n");
  }
  // A bright column of class 1; its last row is ignored.
  void write_bar(int i) const {
    Image image{.width = 16, .height = 16, .channels = 1, .pixels = {}}, mask = image;
    for (int y = 0; y < 16; ++y)
      for (int x = 0; x < 16; ++x) {
        const bool is_bar = x / 3 == i % 5;
        image.pixels.push_back(static_cast<std::uint8_t>(is_bar ? 200 + y : 10 + 3 * x + i));
        mask.pixels.push_back(static_cast<std::uint8_t>(y == 15 ? 255 : is_bar ? 1 : 0));
      }
    const std::string name = std::to_string(10 + i) + ".png";
    write_png(scratch_ / "bars" / "images" / name, image);
    write_mask(scratch_ / "bars" / "masks" / name, mask);
  }
  ProgramRun run(std::vector<std::string> words, const std::string& folder = "runs") {
    if (words[0] == "fit") {
      if (words.size() < 2 || words[1] != "--resume") words.insert(words.begin() + 1, scratch_ / "bars.toml");
      words.insert(words.end(), {"run.dir=" + (scratch_ / folder).string(), "--progress=none"});
    }
    words.push_back("--quiet");
    ProgramRun done = run_program(words);
    EXPECT_EQ(done.exit_code, 0) << done.err << done.out;
    return done;
  }
  std::string run_of(const std::string& folder) const { return scratch_ / folder / "bars/0001"; }

  const Scratch scratch_;
};

TEST_F(SegmentationRun, LearnsValidatesPredictsAndExports) {
  run({"fit"});
  const auto metrics = nlohmann::json::parse(read_file(run_of("runs") + "/run.json", 1 << 20))["metrics"];
  EXPECT_GT(metrics["val_iou_macro"], 0.9);
  EXPECT_GT(metrics["val_dice_per_class[1]"], 0.9);
  const std::string validated = run({"validate", run_of("runs")}).out, iou = "val_iou_macro ";
  ASSERT_NE(validated.find(iou), std::string::npos) << validated;
  EXPECT_GT(std::stod(validated.substr(validated.find(iou) + iou.size())), 0.9);

  const std::string page = read_file(run_of("runs") + "/report.html", 1 << 24);
  for (const char* const text : {"\"Image, labels and prediction of sample 0: error rate ",
                                 "Image, labels and prediction, from left", "Color of no class"})
    EXPECT_NE(page.find(text), std::string::npos) << text;
  EXPECT_TRUE(fs::exists(run_of("runs") + "/worst_masks.npy"));

  run({"predict", run_of("runs"), scratch_ / "bars/images", "--out",
       (scratch_ / "predicted").string() + "/"});
  std::size_t right = 0, all = 0;
  for (int i = 10; i < 26; ++i) {
    const std::string name = std::to_string(i) + ".png";
    const Image found = read_mask(scratch_ / "predicted" / name),
                wanted = read_mask(scratch_ / "bars/masks" / name);
    ASSERT_EQ(found.pixels.size(), wanted.pixels.size());
    for (std::size_t j = 0; j < wanted.pixels.size(); ++j) {
      if (wanted.pixels[j] == 255) continue;
      ++all;
      right += found.pixels[j] == wanted.pixels[j] ? 1 : 0;
    }
  }
  EXPECT_EQ(all, 16U * 15 * 16);
  EXPECT_GT(static_cast<double>(right) / static_cast<double>(all), 0.95);

  // What is there may be the masks of the data set.
  const std::string masks = scratch_ / "bars/masks";
  const ProgramRun kept = run_program({"predict", run_of("runs"), "--out", masks + "/"});
  EXPECT_EQ(kept.exit_code, 2);
  EXPECT_NE(kept.err.find("the directory has files; expected: a new or an empty directory"),
            std::string::npos)
      << kept.err;

  const ProgramRun refused = run_program({"predict", run_of("runs"), "--out", scratch_ / "p.csv"});
  EXPECT_NE(refused.err.find("have the shape [2, 16, 16], which CSV cannot hold"), std::string::npos)
      << refused.err;
}

TEST_F(SegmentationRun, WritesTheMasksOfAnExportedModel) {
  if (!KINDLING_HAS_INTEROP) GTEST_SKIP() << "built with KINDLING_INTEROP=OFF";
  run({"fit", "trainer.max_epochs=2"});
  const ProgramRun exported = run_program({"export", run_of("runs"), scratch_ / "bars.pt2"});
  ASSERT_EQ(exported.exit_code, 0) << exported.err;
  const std::string config = read_file(scratch_ / "bars.toml", 1 << 16),
                    data = config.substr(config.find("[data]"));
  write_text(scratch_ / "exported.toml", "[model]\nname = \"exported\"\nfile = \"bars.pt2\"\n" + data);
  run({"predict", run_of("runs"), "--out", (scratch_ / "of_run").string() + "/"});
  run({"predict", "-c", scratch_ / "exported.toml", "--out", (scratch_ / "of_program").string() + "/"});
  int count = 0;
  for (const fs::directory_entry& file : fs::directory_iterator(scratch_ / "of_run")) {
    EXPECT_EQ(read_file(file.path(), 1 << 20),
              read_file(scratch_ / "of_program" / file.path().filename(), 1 << 20));
    ++count;
  }
  EXPECT_EQ(count, 4);
}

// Masks of the values 0 and 255, which are no class numbers.
TEST_F(SegmentationRun, NeedsNoConfig) {
  for (const fs::directory_entry& file : fs::directory_iterator(scratch_ / "bars/masks")) {
    Image mask = read_mask(file.path());
    for (std::uint8_t& value : mask.pixels) value = value == 1 ? 255 : 0;
    write_mask(file.path(), mask);
  }
  const ProgramRun done =
      run_program({"fit", scratch_ / "bars/", "run.dir=" + (scratch_ / "runs").string(), "--progress=none",
                   "trainer.max_epochs=1", "model.width=4", "model.depth=2"});
  ASSERT_EQ(done.exit_code, 0) << done.err;
  EXPECT_NE(done.out.find("--out masks/\n"), std::string::npos) << done.out;
  const std::string config = read_file(run_of("runs") + "/config.toml", 1 << 16);
  for (const char* line : {"name = \"unet\"", "num_classes = 2", "in_channels = 1",
                           "name = \"segmentation_folder\"", "mask_values = [0, 255]", "val_fraction = 0.2"})
    EXPECT_NE(config.find(line), std::string::npos) << line << "\n" << config;
}

// The values of the masks from 0, which are 0, 1 and 255, become others.
TEST_F(SegmentationRun, NeedsNoConfigUnlessValuesAreUnclear) {
  const auto set_values = [&](int bar, int last_row) {
    for (int i = 0; i < 16; ++i) {
      write_bar(i);
      const fs::path file = scratch_ / "bars/masks" / (std::to_string(10 + i) + ".png");
      Image mask = read_mask(file);
      for (std::uint8_t& value : mask.pixels)
        value = static_cast<std::uint8_t>(value == 1 ? bar : value == 255 ? last_row : 0);
      write_mask(file, mask);
    }
  };
  const auto config = [&](const std::vector<std::string>& more) {
    std::vector<std::string> words{"config", scratch_ / "bars"};
    words.insert(words.end(), more.begin(), more.end());
    return run_program(words);
  };
  set_values(128, 255);
  const ProgramRun refused = config({});
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_EQ(
      refused.err,
      (scratch_ / "bars/masks").string() +
          ": the masks have the values 0, 128, 255; expected: the class numbers 0, 1, … without gaps, "
          "and 255 for pixels that do not count; set data.mask_values = [0, 128, 255], a class for each "
          "value; or omit the value of the pixels that do not count, and set data.ignore_index to "
          "it; if some classes do not occur, name all with data.classes\n");
  const std::string three = config({"data.mask_values=[0, 128, 255]"}).out,
                    two = config({"data.mask_values=[0, 128]", "data.ignore_index=255"}).out;
  EXPECT_NE(three.find("num_classes = 3"), std::string::npos) << three;
  EXPECT_NE(two.find("num_classes = 2"), std::string::npos) << two;
  set_values(200, 0);
  EXPECT_NE(config({}).err.find("set data.mask_values = [0, 200]"), std::string::npos);
  set_values(1, 200);
  EXPECT_NE(config({"data.ignore_index=200"}).out.find("mask_values = [0, 1]"), std::string::npos);
  set_values(1, 255);
  EXPECT_NE(config({}).out.find("mask_values = [0, 1]"), std::string::npos);
}

TEST_F(SegmentationRun, RefusesASplitInDirectories) {
  const auto refusal = [&] {
    const ProgramRun refused = run_program({"fit", scratch_ / "bars"});
    EXPECT_EQ(refused.exit_code, 2);
    return refused.err;
  };
  for (const char* folder : {"images", "masks"}) {
    fs::create_directories(scratch_ / "bars" / folder / "train");
    fs::rename(scratch_ / "bars" / folder / "10.png", scratch_ / "bars" / folder / "train/10.png");
  }
  EXPECT_EQ(refusal(),
            (scratch_ / "bars/images").string() +
                ": the directories train, a split that would be lost: segmentation_folder has no "
                "directory for validation; expected: one directory of images and one of masks, "
                "without a split; in a config, data.images = \"images/train\" and data.masks = "
                "\"masks/train\" take one of them, of which data.val_fraction is for validation\n");
  fs::rename(scratch_ / "bars", scratch_ / "train");
  fs::create_directories(scratch_ / "bars");
  fs::rename(scratch_ / "train", scratch_ / "bars/train");
  EXPECT_EQ(refusal(), (scratch_ / "bars/train").string() +
                           ": the directories images and masks; a segmentation with a directory for "
                           "validation is not supported; expected: images and masks of all pairs, a part of "
                           "which is for validation; to train on these pairs alone: kindling fit " +
                           (scratch_ / "bars/train").string() + "\n");
}

TEST_F(SegmentationRun, RefusesBoxes) {
  fs::rename(scratch_ / "bars/masks", scratch_ / "bars/labels");
  const ProgramRun refused = run_program({"fit", scratch_ / "bars"});
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_EQ(refused.err,
            (scratch_ / "bars").string() +
                ": the directories images and labels, as data sets with boxes have them; expected: a "
                "directory per class, or images and masks; Kindling has no detection; if they are masks, "
                "rename the directory to masks\n");
}

TEST_F(SegmentationRun, NeedsNoIgnoreIndexInTheModel) {
  const ProgramRun refused =
      run_program({"fit", scratch_ / "bars.toml", "model.ignore_index=255", "--check"});
  EXPECT_NE(refused.exit_code, 0);
  EXPECT_NE(refused.err.find("a label of the data is -100"), std::string::npos) << refused.err;
  EXPECT_NE(refused.err.find("remove ignore_index"), std::string::npos) << refused.err;
}

// Crops and mirror images of the rest of the run depend on the samples and the epoch only.
TEST_F(SegmentationRun, ResumesBitIdentically) {
  run({"fit", "trainer.max_epochs=4"}, "whole");
  run({"fit", "trainer.max_epochs=2"}, "part");
  run({"fit", "--resume", run_of("part"), "trainer.max_epochs=4"}, "part");
  EXPECT_EQ(read_file(run_of("whole") + "/weights.safetensors", 1 << 24),
            read_file(run_of("part") + "/weights.safetensors", 1 << 24));
}

}  // namespace
}  // namespace kindling
