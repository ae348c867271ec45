#include "kindling/data/segmentation_folder.h"

#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "kindling/base/error.h"
#include "kindling/data/crop_transforms.h"
#include "kindling/data/data_loader.h"
#include "kindling/data/image_transforms.h"
#include "kindling/data/transformed_data.h"
#include "kindling/formats/image.h"
#include "support/log_lines.h"
#include "support/png_bytes.h"
#include "support/scratch.h"
#include "support/tensor_matchers.h"

namespace kindling {
namespace {

using Rows = std::vector<std::vector<int>>;

class SegmentationFolders : public testing::Test {
 protected:
  void SetUp() override {
    if (!can_read_png()) GTEST_SKIP() << "built without libpng";
  }
  // A file of one byte per pixel: grey (0) or indices of a palette (3).
  void write(const std::string& name, const Rows& rows, int color = 0) const {
    std::string bytes;
    for (const std::vector<int>& row : rows) {
      bytes += '\0';
      for (const int value : row) bytes += static_cast<char>(value);
    }
    write_bytes(name,
                png_bytes({.width = static_cast<std::uint32_t>(rows[0].size()),
                           .height = static_cast<std::uint32_t>(rows.size()),
                           .color = color,
                           .rows = bytes,
                           .before_rows = color == 3 ? png_chunk("PLTE", std::string(768, '\7')) : ""}));
  }
  void write_bytes(const std::string& name, const std::string& bytes) const {
    std::filesystem::create_directories((scratch_ / name).parent_path());
    std::ofstream(scratch_ / name, std::ios::binary) << bytes;
  }
  SegmentationFolderOptions in_scratch(SegmentationFolderOptions options = {}) const {
    options.root = scratch_.folder();
    return options;
  }
  static Batch all_of(DataModule& data, DataLoader& loader, Stage stage = Stage::val) {
    loader.start_epoch(0);
    Batch batch;
    loader.next(batch);
    return data.on_after_batch_transfer(std::move(batch), stage);
  }
  Batch all_of(const SegmentationFolderOptions& options) const {
    SegmentationFolder data(in_scratch(options), {.batch_size = 100, .shuffle = false});
    return all_of(data, *data.train_dataloader());
  }
  std::string without_folder(std::string text) const {
    const std::string folder = scratch_.folder().string() + "/";
    for (std::size_t at = 0; (at = text.find(folder)) != std::string::npos;) text.erase(at, folder.size());
    return text;
  }
  std::string refusal(const SegmentationFolderOptions& options, const DataOptions& shared = {}) const {
    return without_folder(error_text<Error>([&] {
      SegmentationFolder data(in_scratch(options), shared);
      data.prepare();
      all_of(data, *data.train_dataloader());
    }));
  }

  const Scratch scratch_;
};

std::string said_by(const LogLines& log) {
  std::string all;
  for (const std::string& text : log.texts) all += text + "\n";
  return all;
}

at::Tensor classes_of(const Rows& rows) {
  std::vector<at::Tensor> tensors;
  for (const std::vector<int>& row : rows) tensors.push_back(at::tensor(row, at::kLong));
  return at::stack(tensors);
}

TEST_F(SegmentationFolders, PairImagesAndMasksByName) {
  write("images/b.png", {{51, 0, 255}, {0, 0, 0}});
  write("images/a/b.png", {{0, 0, 0}, {0, 102, 0}});
  write("images/c.PNG", {{0, 0, 0}, {0, 0, 255}});
  write("masks/b.png", {{1, 0, 255}, {0, 0, 0}}, 3);
  write("masks/a/b.png", {{0, 0, 0}, {0, 2, 0}});
  write("masks/c_mask.png", {{0, 0, 0}, {0, 0, 3}});
  const LogLines log;
  SegmentationFolder data(in_scratch(), {.batch_size = 3, .shuffle = false});
  const Batch batch = all_of(data, *data.train_dataloader());
  EXPECT_EQ(said_by(log), "");
  ASSERT_EQ(batch.tensors().size(), 2U);
  EXPECT_EQ(batch[0].scalar_type(), at::kFloat);
  EXPECT_EQ(batch[0].sizes(), (std::vector<std::int64_t>{3, 1, 2, 3}));
  EXPECT_TRUE(close(batch[0][0][0][1][1], at::tensor(0.4F).squeeze(), 1e-7));
  // Sorted by name; 255 is ignored.
  EXPECT_EQ(batch[1].scalar_type(), at::kLong);
  EXPECT_TRUE(batch[1][0].equal(classes_of({{0, 0, 0}, {0, 2, 0}})));
  EXPECT_TRUE(batch[1][1].equal(classes_of({{1, 0, -100}, {0, 0, 0}})));
  EXPECT_TRUE(batch[1][2].equal(classes_of({{0, 0, 0}, {0, 0, 3}})));
  EXPECT_EQ(data.class_names(), (std::vector<std::string>{"0", "1", "2", "3"}));
}

TEST_F(SegmentationFolders, CountAndNameFilesWithoutTheirCounterpart) {
  for (const std::string name : {"a", "b", "c"}) write("images/" + name + ".png", {{0, 0}});
  write_bytes("images/notes.txt", "");
  write_bytes("images/.hidden", "");
  for (const std::string name : {"a", "c_mask", "d"}) write("masks/" + name + ".png", {{0, 1}});
  write_bytes("masks/b.jpg", "");
  const LogLines log;
  SegmentationFolder data(in_scratch());
  EXPECT_EQ(data.train_dataloader()->dataset().size(), 2);
  const std::vector<std::string> wanted{
      "images/notes.txt: by its ending not an image", "masks/b.jpg: masks are PNG files",
      "images/b.png: there is no mask masks/b.png", "masks/d.png: there is no image of this name in images"};
  std::vector<std::string> found;
  for (const std::string& text : data.skipped_samples()) found.push_back(without_folder(text));
  EXPECT_EQ(found.size(), wanted.size());
  for (std::size_t i = 0; i < wanted.size(); ++i)
    EXPECT_EQ(found.at(i).substr(0, wanted[i].size()), wanted[i]);
  EXPECT_NE(without_folder(said_by(log)).find("skipped 4 of 8 images and masks"), std::string::npos)
      << said_by(log);
}

TEST_F(SegmentationFolders, RefuseFilesThatDoNotFit) {
  EXPECT_EQ(refusal({}),
            "images: no such directory; expected: the directory of data.images; relative paths are "
            "relative to the config file's directory");
  write("images/a.png", {{0, 0}, {0, 0}});
  EXPECT_NE(refusal({}).find("masks: no such directory"), std::string::npos);
  write("masks/b.png", {{0, 1}, {0, 0}});
  EXPECT_NE(refusal({}).find("masks: no file in it is the mask of an image in"), std::string::npos)
      << refusal({});
  write("masks/a.png", {{0, 1}});
  EXPECT_EQ(refusal({}),
            "sample 0 of the data set, epoch 0: masks/a.png: the mask has 1 x 2 pixels (height x width), and "
            "its image images/a.png 2 x 2; "
            "expected: the same size; images are turned upright by their EXIF orientation; masks "
            "must fit the result");
  write("masks/a.png", {{0, 1}, {0, 9}});
  EXPECT_EQ(
      refusal({.classes = {"sky", "sea"}}),
      "sample 0 of the data set, epoch 0: masks/a.png: the pixel in row 1, column 1 (from 0) has the value "
      "9; expected: values from 0 to 1, or "
      "255, which is ignored; correct the mask, or data.classes, data.mask_values and data.ignore_index");
  EXPECT_NE(
      refusal({.mask_values = {1, 0}, .ignore_index = -1}).find("expected: one of the values 1, 0; correct"),
      std::string::npos);
  write_bytes("masks/a.png", png_bytes({.width = 2, .color = 2, .rows = std::string(7, '\0')}));
  EXPECT_NE(refusal({}).find("masks/a.png: the mask has colors (RGB)"), std::string::npos);
  write_bytes("images/a.jpg", "");
  EXPECT_EQ(refusal({}),
            "images/a.png: there is also a.jpg; expected: one file of this name; remove or rename one of "
            "them");
}

TEST_F(SegmentationFolders, CountTheClassesOfTheMasks) {
  write("images/a.png", {{0, 0, 0}});
  write("masks/a.png", {{0, 255, 0}});
  EXPECT_EQ(refusal({}),
            "masks: the masks have the values 0, 255, and 255 is ignored (data.ignore_index); expected: at "
            "least two "
            "classes; for masks of 0 and 255, set data.mask_values = [0, 255]");
  EXPECT_TRUE(all_of(SegmentationFolderOptions{.mask_values = {0, 255}})[1].equal(
      classes_of({{0, 1, 0}}).unsqueeze(0)));
  EXPECT_TRUE(all_of(SegmentationFolderOptions{.mask_values = {255, 7}, .ignore_index = 0})[1].equal(
      classes_of({{-100, 0, -100}}).unsqueeze(0)));
  write("masks/a.png", {{0, 3, 255}});
  const LogLines log;
  SegmentationFolder data(in_scratch());
  EXPECT_EQ(data.class_names().size(), 4U);
  EXPECT_NE(
      said_by(log).find("the masks have the values 0, 3, which are 4 classes, of which some do not occur"),
      std::string::npos)
      << said_by(log);
  // With names and a value that is ignored, no mask is read before a batch needs it.
  write_bytes("masks/a.png", "");
  SegmentationFolder named(in_scratch({.classes = {"sky", "sea"}, .ignore_index = 255}));
  EXPECT_EQ(named.class_names(), (std::vector<std::string>{"sky", "sea"}));
}

// Masks of two classes are often black and white.
TEST_F(SegmentationFolders, DoNotIgnoreTheOnlyClassBesideTheBackground) {
  for (const std::string name : {"a", "b"}) {
    write("images/" + name + ".png", {{0, 0}});
    write("masks/" + name + ".png", {{0, 255}});
  }
  const std::string named = refusal({.classes = {"background", "cell"}});
  EXPECT_NE(named.find("pixels of 255, which would be ignored"), std::string::npos) << named;
  EXPECT_NE(named.find("data.mask_values = [0, 255]"), std::string::npos) << named;
  EXPECT_TRUE(
      all_of({.classes = {"background", "cell"}, .mask_values = {0, 255}})[1][0].equal(classes_of({{0, 1}})));
  // Said explicitly, they do not count.
  EXPECT_TRUE(
      all_of({.classes = {"background", "cell"}, .ignore_index = 255})[1][0].equal(classes_of({{0, -100}})));
  EXPECT_EQ(refusal({.mask_values = {0, 255}, .ignore_index = 255}),
            "data.ignore_index: it is also one of data.mask_values; expected: a value that is not a class");
}

TEST_F(SegmentationFolders, PairFilesOfOneDirectoryByTheEndingOfMasks) {
  for (const std::string name : {"a", "b"}) {
    write("both/" + name + ".png", {{9, 9}});
    write("both/" + name + "_mask.png", {{0, 1}});
  }
  const Batch batch = all_of({.images = "both", .masks = "both"});
  ASSERT_EQ(batch[0].size(0), 2);
  EXPECT_TRUE(batch[1][0].equal(classes_of({{0, 1}})));
}

// PIL's resize(size, NEAREST) returns these indices.
TEST_F(SegmentationFolders, ResizeMasksToTheNearestPixel) {
  write("images/a.png", {{0, 0, 0, 0, 0}});
  write("masks/a.png", {{0, 1, 2, 3, 4}});
  const auto resized = [&](std::int64_t width) {
    return all_of(SegmentationFolderOptions{.size = {{1, width}}})[1].flatten();
  };
  EXPECT_TRUE(resized(3).equal(at::tensor({0, 2, 4}, at::kLong)));
  EXPECT_TRUE(resized(2).equal(at::tensor({1, 3}, at::kLong)));
  EXPECT_TRUE(resized(10).equal(at::tensor({0, 0, 1, 1, 2, 2, 3, 3, 4, 4}, at::kLong)));
}

// The directories and lists of PASCAL VOC, where most images have no mask.
class SegmentationLists : public SegmentationFolders {
 protected:
  void SetUp() override {
    SegmentationFolders::SetUp();
    for (const std::string name : {"2007_000033", "2007_000027", "2007_000032", "2008_000001"})
      write("JPEGImages/" + name + ".png", {{0, 0}});
    for (int i = 0; i < 3; ++i)
      write("SegmentationClass/2007_0000" +
                std::vector<std::string>{"33", "27", "32"}[static_cast<std::size_t>(i)] + ".png",
            {{i, 255}}, 3);
    list("train", "2007_000032\r\n2007_000027 \n\n");
    list("val", "2007_000033");
  }
  void list(const std::string& name, const std::string& text) const {
    write_bytes("ImageSets/Segmentation/" + name + ".txt", text);
  }
  static SegmentationFolderOptions options() {
    return {.images = "JPEGImages",
            .masks = "SegmentationClass",
            .train_list = "ImageSets/Segmentation/train.txt",
            .val_list = "ImageSets/Segmentation/val.txt"};
  }
};

TEST_F(SegmentationLists, SplitThePairs) {
  const LogLines log;
  SegmentationFolder data(in_scratch(options()), {.batch_size = 3, .shuffle = false});
  EXPECT_EQ(data.train_ids().values, (std::vector<std::string>{"2007_000032.png", "2007_000027.png"}));
  EXPECT_EQ(data.val_ids().values, (std::vector<std::string>{"2007_000033.png"}));
  EXPECT_TRUE(all_of(data, *data.train_dataloader())[1].flatten(1).equal(classes_of({{2, -100}, {1, -100}})));
  EXPECT_TRUE(all_of(data, *data.val_dataloader())[1].flatten(1).equal(classes_of({{0, -100}})));
  // Files that are not listed are not missing.
  EXPECT_EQ(said_by(log), "");
  EXPECT_TRUE(data.skipped_samples().empty());
}

TEST_F(SegmentationLists, NeedAnImageAndAMaskForEachName) {
  list("val", "2007_000033\n2008_000001\n");
  EXPECT_EQ(
      refusal(options()),
      "ImageSets/Segmentation/val.txt:2: there is no mask SegmentationClass/2008_000001.png; expected: a "
      "mask for each image of the list");
  list("val", "\n2007_000033.jpg\n");
  EXPECT_EQ(
      refusal(options()),
      "ImageSets/Segmentation/val.txt:2: there is no image JPEGImages/2007_000033.jpg; expected: a name "
      "per line, without an ending, relative to the directory of the images");
  list("val", "2007_000027");
  EXPECT_EQ(refusal(options()),
            "ImageSets/Segmentation/val.txt:1: 2007_000027 is also in ImageSets/Segmentation/train.txt:2; "
            "expected: each pair once");
  list("val", "\n");
  EXPECT_EQ(refusal(options()),
            "ImageSets/Segmentation/val.txt: no names; expected: the name of an image and its mask per line");
  std::filesystem::remove(scratch_ / "ImageSets/Segmentation/val.txt");
  EXPECT_NE(refusal(options()).find("ImageSets/Segmentation/val.txt"), std::string::npos);
}

TEST_F(SegmentationLists, AreTheOnlySplit) {
  SegmentationFolderOptions with_fraction = options();
  with_fraction.val_fraction = 0.5;
  EXPECT_EQ(refusal(with_fraction),
            "data.train_list: there is also val_fraction, folds, or a range of pairs in train or val; "
            "expected: one way to split the pairs");
  EXPECT_NE(refusal(options(), {.val = {{0, 1}}}).find("data.train_list"), std::string::npos);
  EXPECT_EQ(refusal({.val_list = "val.txt"}),
            "data.val_list: train_list is not set; expected: the names of the pairs for training, too");
}

// Images whose pixels name the class of their mask.
TEST_F(SegmentationFolders, MoveImagesAndMasksByTheSameRandomNumbers) {
  Rows classes(12, std::vector<int>(12)), image(12, std::vector<int>(12));
  for (std::size_t y = 0; y < 12; ++y)
    for (std::size_t x = 0; x < 12; ++x)
      image[y][x] = 20 * (classes[y][x] = static_cast<int>((5 * y + x) % 7));
  for (int i = 0; i < 9; ++i) write("images/" + std::to_string(i) + ".png", image);
  for (int i = 0; i < 9; ++i) write("masks/" + std::to_string(i) + ".png", classes);
  const auto transforms = std::make_shared<Compose>(std::vector<std::shared_ptr<const Transform>>{
      std::make_shared<RandomHorizontalFlip>(),
      std::make_shared<RandomCrop>(RandomCropOptions{.size = {{10, 10}}, .padding = 2}),
      std::make_shared<RandomAffine>(RandomAffineOptions{.degrees = {-20, 20}}),
      std::make_shared<Normalize>(NormalizeOptions{.mean = {0}, .std = {20. / 255}})});
  const auto moved = [&] {
    TransformedData data(std::make_shared<SegmentationFolder>(in_scratch(), DataOptions{.batch_size = 9}),
                         {.train = transforms});
    return all_of(data, *data.train_dataloader(), Stage::train);
  };
  const Batch batch = moved();
  EXPECT_EQ(batch[1].sizes(), (std::vector<std::int64_t>{9, 10, 10}));
  EXPECT_TRUE(close(batch[0].squeeze(1), batch[1].to(at::kFloat), 1e-5));
  EXPECT_FALSE(batch[1][0].equal(batch[1][1]));
  EXPECT_TRUE(batch[1].equal(moved()[1]));
}

TEST_F(SegmentationFolders, PredictImagesWithoutMasks) {
  write("images/a.png", {{0, 0}});
  write("masks/a.png", {{0, 1}});
  write("new/x/b.png", {{255, 0}});
  write("new/c.png", {{0, 255}});
  for (const bool has_training_data : {true, false}) {
    SegmentationFolder data(in_scratch({.classes = {"sky", "sea"}}));
    data.predict_from(scratch_ / "new");
    EXPECT_EQ(data.predict_ids().values, (std::vector<std::string>{"c.png", "x/b.png"}));
    const Batch batch = all_of(data, *data.predict_dataloader(), Stage::predict);
    ASSERT_EQ(batch.tensors().size(), 1U);
    EXPECT_TRUE(batch[0].flatten(1).equal(at::tensor({0.F, 1.F, 1.F, 0.F}).view({2, 2})));
    EXPECT_EQ(data.train_dataloader() != nullptr, has_training_data);
    std::filesystem::remove_all(scratch_ / "images");
    std::filesystem::remove_all(scratch_ / "masks");
  }
}

TEST_F(SegmentationFolders, RefuseOptionsThatContradictEachOther) {
  EXPECT_EQ(
      error_text<ConfigError>([] { SegmentationFolder(SegmentationFolderOptions{}); }),
      "data.root: it is not set; expected: the directory of images and masks; for example root = \"cells\"");
  EXPECT_NE(refusal({.classes = {"a", "b", "c"}, .mask_values = {0, 255}})
                .find("data.mask_values: there are 2 values, and 3 classes; expected: one value per class"),
            std::string::npos);
  EXPECT_NE(refusal({.mask_values = {5, 5}}).find("a value is listed twice"), std::string::npos);
  EXPECT_NE(refusal({.classes = {"a"}}).find("data.classes: there is one class"), std::string::npos);
  EXPECT_NE(refusal({.channels = 2}).find("data.channels: it is 2"), std::string::npos);
  EXPECT_NE(refusal({.fold = 1}).find("data.fold: folds is not set"), std::string::npos);
  EXPECT_NE(refusal({}, {.sampler = "balanced"}).find("class_weights = \"balanced\" in [model]"),
            std::string::npos);
  EXPECT_NE(refusal({.val_fraction = 0.5}, {.val = {{0, 1}}}).find("one way to split the pairs"),
            std::string::npos);
}

}  // namespace
}  // namespace kindling
