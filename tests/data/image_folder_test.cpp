#include "kindling/data/image_folder.h"

#include <ATen/Functions.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "data/image_folders.h"
#include "kindling/base/error.h"
#include "kindling/data/data_loader.h"
#include "kindling/formats/image.h"
#include "support/image_files.h"
#include "support/log_lines.h"
#include "support/scratch.h"
#include "support/tensor_matchers.h"

namespace kindling {
namespace {

TEST_F(ImageFolders, HaveTheirClassesAndFilesInBytewiseOrder) {
  write_png(root_ / "apple" / "2.png", 2, 3, 3, 40);
  write_png(root_ / "apple" / "10.PNG", 2, 3, 3, 30);
  write_png(root_ / "Zebra" / "z.png", 2, 3, 3, 20);
  write_png(root_ / ".cache" / "z.png", 2, 3, 3);
  write("images/apple/notes.txt", "no image");
  write("images/readme.png", "in no class");
  ImageFolder data({.root = root_}, {.batch_size = 8, .shuffle = false});
  data.prepare();
  EXPECT_EQ(data.class_names(), (std::vector<std::string>{"Zebra", "apple"}));
  EXPECT_EQ(data.val_dataloader(), nullptr);
  const Batch batch = all_of(*data.train_dataloader());
  EXPECT_TRUE(
      same(batch[0], at::stack({png_tensor(3, 2, 3, 20), png_tensor(3, 2, 3, 30), png_tensor(3, 2, 3, 40)})));
  EXPECT_TRUE(same(batch[1], at::tensor({0, 1, 1}, at::kLong)));
  const Batch on_device = data.on_after_batch_transfer(batch, Stage::train);
  EXPECT_EQ(on_device[0].scalar_type(), at::kFloat);
  EXPECT_EQ(on_device[0][0][0][0][0].item<float>(), 20.0F / 255);
  EXPECT_EQ(on_device[0][2][2][1][2].item<float>(), static_cast<float>(png_value(1, 2, 2, 40)) / 255);
}

TEST_F(ImageFolders, CountAndNameEveryFile) {
  if (!can_read_jpeg()) GTEST_SKIP() << "built without libjpeg-turbo";
  write_png(root_ / "a" / "z.png", 2, 3, 3, 10);
  write_png(root_ / "a" / "in" / "1.png", 2, 3, 3, 20);
  write_png(root_ / "a" / "in" / "deep" / "1.PNG", 2, 3, 3, 30);
  write_png(root_ / "a" / "in" / ".hidden" / "1.png", 2, 3, 3);
  write_png(root_ / "a" / "no_ending", 2, 3, 3, 40);
  const std::filesystem::path images = std::filesystem::path(KINDLING_FIXTURES) / "images";
  std::filesystem::copy_file(images / "gradient.jpg", root_ / "a" / "photo.jfif");
  write("images/a/.DS_Store", "");
  write("images/a/notes.txt", "text");
  write("images/a/moving.gif", "GIF89a");
  write("images/readme.txt", "in no class");
  std::filesystem::create_directory_symlink(root_, root_ / "a" / "link");
  std::filesystem::create_directory_symlink(root_ / "a" / "in",
                                            root_ / "a" / "same");  // of files that it has
  std::filesystem::create_symlink("loop", root_ / "a" / "loop");
  ASSERT_EQ(::mkfifo((root_ / "a" / "pipe").c_str(), 0600), 0);  // opening it would wait
  const LogLines log;
  ImageFolder data({.root = root_, .size = {{2, 3}}});
  data.prepare();
  EXPECT_EQ(data.skipped_samples().size(), 1U);
  EXPECT_EQ(log.texts,
            (std::vector<std::string>{
                root_.string() + ": skipped 1 of 6 images, which cannot be used:\n  " +
                    (root_ / "a/moving.gif").string() +
                    ": Kindling does not read the format GIF; expected: a PNG, JPEG, BMP, WebP or TIFF image",
                root_.string() +
                    ": 5 images; no images: 4 files, such as readme.txt; hidden: 2 files or directories"}));
  write_png(root_ / "b" / "1.png", 2, 3, 3);
  ImageFolder ordered({.root = root_, .size = {{2, 3}}}, {.val = {{0, 5}}});
  EXPECT_EQ(ordered.val_ids().values, (std::vector<std::string>{"a/no_ending", "a/photo.jfif", "a/z.png",
                                                                "a/in/1.png", "a/in/deep/1.PNG"}));
  EXPECT_EQ(ordered.train_ids().values, std::vector<std::string>{"b/1.png"});
}

TEST_F(ImageFolders, NameADamagedFileOfEachFormat) {
  write_png(root_ / "a" / "z.png", 2, 3);
  for (const char* const name : {"1.webp", "1.tiff", "1.bmp", "1.jfif", "1.JPG"}) {
    write(std::string("images/a/") + name, "");
    EXPECT_EQ(refusal({.root = root_}),
              std::string("images/a/") + name +
                  ": the file is empty; expected: a PNG, JPEG, BMP, WebP or TIFF image");
    std::filesystem::remove(root_ / "a" / name);
  }
  std::filesystem::create_symlink("nothing", root_ / "a" / "1.tif");
  EXPECT_NE(refusal({.root = root_}).find("images/a/1.tif"), std::string::npos);
}

TEST_F(ImageFolders, NormalizeOnTheDevice) {
  write_png(root_ / "a" / "1.png", 1, 1, 1, 51);
  ImageFolder data({.root = root_, .normalize = {{0.5, 0.25}}});
  data.prepare();
  const Batch batch = data.on_after_batch_transfer(all_of(*data.train_dataloader()), Stage::train);
  EXPECT_NEAR(batch[0].item<float>(), (0.2 - 0.5) / 0.25, 1e-6);
  EXPECT_EQ(refusal({.root = root_, .normalize = {{0.5, 0}}}),
            "data.normalize: the standard deviation 0.000000; expected: [mean, std] with std > 0");
}

TEST_F(ImageFolders, MayBeAList) {
  write_png(root_ / "x.png", 2, 2, 1, 1);
  write_png(root_ / "more" / "y.png", 2, 2, 1, 2);
  write("images/files.csv", "label,file,extra\n10,more/y.png,1\n9,x.png,2\n10,x.png,3\n");
  ImageFolder data({.list = root_ / "files.csv"}, {.batch_size = 8, .shuffle = false, .val = {{1, 3}}});
  data.prepare();
  EXPECT_EQ(data.class_names(), (std::vector<std::string>{"9", "10"}));  // numbers, in their order
  EXPECT_TRUE(same(all_of(*data.train_dataloader())[1], at::tensor({1}, at::kLong)));  // outside `val`
  EXPECT_TRUE(
      same(all_of(*data.val_dataloader())[0], at::stack({png_tensor(1, 2, 2, 1), png_tensor(1, 2, 2, 1)})));
  EXPECT_EQ(data.predict_ids().name, "file");
  EXPECT_EQ(data.predict_ids().values, (std::vector<std::string>{"x.png", "x.png"}));
  EXPECT_EQ(data.val_ids().values, data.predict_ids().values);
  write("list.csv", "file,label\nx.png,b\nmore/y.png,a\n");
  EXPECT_TRUE(same(all_of({.root = root_, .list = scratch_ / "list.csv"})[1], at::tensor({1, 0}, at::kLong)));
}

// The numbers are those of Pillow 13: Image.resize((width, height), Image.BILINEAR).
TEST_F(ImageFolders, ResizeAsPilDoes) {
  const auto resized = [&](const char* name, std::int64_t height, std::int64_t width) {
    return all_of({.root = scratch_ / name, .size = {{height, width}}})[0].flatten();
  };
  write_png(scratch_ / "a/x/1.png", 4, 5);
  EXPECT_TRUE(same(resized("a", 2, 3), at::tensor({60, 118, 155, 155, 128, 99}, at::kByte)));
  write_png(scratch_ / "b/x/1.png", 2, 2, 3);
  EXPECT_TRUE(same(resized("b", 3, 3), at::tensor({0,  19, 37, 31,  50, 68, 61, 80, 98, 17,  36, 54,  48, 67,
                                                   85, 78, 97, 115, 34, 53, 71, 65, 84, 102, 95, 114, 132},
                                                  at::kByte)));
  write_png(scratch_ / "c/x/1.png", 7, 9);
  EXPECT_TRUE(
      same(resized("c", 7, 2),
           at::tensor({81, 121, 138, 121, 149, 103, 102, 142, 108, 164, 126, 109, 137, 91}, at::kByte)));
  write_png(scratch_ / "d/x/1.png", 6, 3);
  EXPECT_TRUE(same(resized("d", 4, 3),
                   at::tensor({23, 60, 97, 108, 145, 154, 197, 148, 43, 122, 63, 100}, at::kByte)));
}

TEST_F(ImageFolders, ConvertToTheChannelsOfTheFirstFile) {
  write_png(root_ / "a" / "1.png", 2, 2, 1);
  write_png(root_ / "a" / "2.png", 2, 2, 3);
  EXPECT_EQ(all_of({.root = root_})[0].sizes(), (at::IntArrayRef{2, 1, 2, 2}));
  const at::Tensor color = all_of({.root = root_, .channels = 3})[0];
  EXPECT_TRUE(same(color[0], png_tensor(1, 2, 2).expand({3, 2, 2})));
  EXPECT_TRUE(same(color[1], png_tensor(3, 2, 2)));
}

TEST_F(ImageFolders, ReadJpegFilesAtAReducedSize) {
  if (!can_read_jpeg()) GTEST_SKIP() << "built without libjpeg-turbo";
  const std::filesystem::path images = std::filesystem::path(KINDLING_FIXTURES) / "images";
  std::filesystem::create_directories(root_ / "a");
  std::filesystem::copy_file(images / "gradient.jpg", root_ / "a" / "1.jpg");  // 16 x 24
  std::filesystem::copy_file(images / "large.jpg", root_ / "a" / "2.JPEG");    // 48 x 64
  const at::Tensor all = all_of({.root = root_, .size = {{12, 16}}})[0];
  ASSERT_EQ(all.sizes(), (at::IntArrayRef{2, 3, 12, 16}));
  for (std::int64_t y = 1; y < 11; ++y)
    for (std::int64_t x = 1; x < 15; ++x) {  // each pixel of the result is the mean of 4 x 4 of the file
      ASSERT_NEAR(all[1][0][y][x].item<int>(), 3 * (4 * static_cast<double>(x) + 1.5), 6) << y << " " << x;
      ASSERT_NEAR(all[1][1][y][x].item<int>(), 5 * (4 * static_cast<double>(y) + 1.5), 6) << y << " " << x;
    }
}

TEST_F(ImageFolders, RefuseWrongOptions) {
  EXPECT_EQ(refusal({}),
            "data: neither root nor list is set; expected: a directory of images, or a list of files; for "
            "example root = \"images\"");
  EXPECT_EQ(refusal({.root = root_, .channels = 2}),
            "data.channels: it is 2; expected: 1 (grey) or 3 (color)");
  EXPECT_EQ(refusal({.root = root_, .fold = 1}),
            "data.fold: folds is not set; expected: folds = N, with fold < N");
  EXPECT_EQ(
      refusal({.root = root_, .stratify = true}),
      "data.stratify: the files are not split; expected: val_fraction or folds; for example val_fraction "
      "= 0.2");
  EXPECT_EQ(
      refusal({.root = root_, .folds = 2}, {.val = {{0, 1}}}),
      "data: val_fraction or folds, and a range of files in train or val; expected: one way to split the "
      "files");
  write_png(root_ / "a" / "1.png", 1, 1);
  EXPECT_EQ(refusal({.root = root_}, {.val = {{0, 2}}}),
            "data.val: the range [0, 2]; expected: [first, end] with 0 <= first < end <= 1");
  EXPECT_EQ(
      refusal({.root = root_, .val_fraction = 0.5, .folds = 2}),
      "data: both val_fraction and folds are set; expected: one of them; for example val_fraction = 0.2");
}

// By torchvision, "c" of the validation images would be class 0.
TEST_F(ImageFolders, ValidateOnADirectoryWithTheLabelsOfTheTraining) {
  for (const char* file : {"a/1.png", "b/1.png", "c/1.png", "c/2.png"})
    write_png(root_ / "train" / file, 1, 1);
  write_png(root_ / "val/c/7.png", 1, 1, 1, 9);
  ImageFolder data({.root = root_ / "train", .val_root = root_ / "val"}, {.batch_size = 8, .shuffle = false});
  data.prepare();
  EXPECT_TRUE(same(all_of(*data.train_dataloader())[1], at::tensor({0, 1, 2, 2}, at::kLong)));
  const Batch validation = all_of(*data.val_dataloader());
  EXPECT_TRUE(same(validation[0], png_tensor(1, 1, 1, 9).unsqueeze(0)));
  EXPECT_TRUE(same(validation[1], at::tensor({2}, at::kLong)));
  EXPECT_EQ(data.val_ids().values, std::vector<std::string>{"c/7.png"});
  EXPECT_EQ(data.class_names(), (std::vector<std::string>{"a", "b", "c"}));

  write_png(root_ / "val/cc/1.png", 1, 1);
  EXPECT_EQ(refusal({.root = root_ / "train", .val_root = root_ / "val"}),
            "images/val/cc: no training images have this class; expected: one of a, b, c; add its images to "
            "images/train, or remove the directory");
  EXPECT_EQ(refusal({.root = root_ / "train", .val_root = root_ / "no"}),
            "images/no: no such directory; expected: the directory of data.val_root, with a directory of "
            "images per "
            "class; relative paths are relative to the config file's directory");
  EXPECT_EQ(
      refusal({.root = root_ / "train", .val_root = root_ / "val", .val_fraction = 0.2}),
      "data.val_root: it is set, and the files are split, too; expected: one way to get validation images");
}

TEST_F(ImageFolders, RefuseWrongDirectoriesAndLists) {
  EXPECT_EQ(refusal({.root = root_}),
            "images: no such directory; expected: the directory of data.root, with a directory of images per "
            "class; relative paths are relative to the config file's directory");
  write("images/x.png", "");
  EXPECT_EQ(refusal({.root = root_}),
            "images: there are no directories in it; expected: a directory of images per class; or set "
            "data.list to a table with the columns file and label");
  write("images/b/x.txt", "");
  EXPECT_EQ(refusal({.root = root_}),
            "images/b: there are no images of this class; expected: PNG, JPEG, BMP, WebP or TIFF files; "
            "remove the directory if it is not a class");
  EXPECT_EQ(refusal({.list = root_ / "no.csv"}),
            "images/no.csv: no such file; expected: the table of data.list, with the columns file and "
            "label; relative paths are relative to the config file's directory");
  write("files.csv", "files,label\nx.png,a\n");
  EXPECT_EQ(refusal({.list = scratch_ / "files.csv"}),
            "files.csv: no column has the name 'file'; expected: one of files, label; did you mean 'files'?");
  write("files.csv", "file,labels\nx.png,a\n");
  EXPECT_EQ(
      refusal({.list = scratch_ / "files.csv"}),
      "data.list: files.csv has no column 'label'; expected: one of file, labels; did you mean 'labels'?");
  write("files.csv", "file,label\nx.png,a\n");
  EXPECT_EQ(refusal({.list = scratch_ / "files.csv"}),
            "files.csv, row 1, column 'file': there is no file x.png; expected: a PNG, JPEG, BMP, WebP or "
            "TIFF file; correct the "
            "row, or set data.root to the directory of the files");
  write("files.csv", "file,label\nx.png,a\n,b\n");
  EXPECT_EQ(refusal({.root = root_, .list = scratch_ / "files.csv"}),
            "files.csv, row 2, column 'file': the file is missing; expected: a PNG, JPEG, BMP, WebP or TIFF "
            "file; correct the "
            "row, or set data.root to the directory of the files");
  write("files.csv", "file,label\nNA,b\n");
  EXPECT_EQ(refusal({.root = root_, .list = scratch_ / "files.csv"}),
            "files.csv, row 1, column 'file': the file is missing; expected: a PNG, JPEG, BMP, WebP or TIFF "
            "file; correct the "
            "row, or set data.root to the directory of the files");
  write("files.csv", "file,label\nx.png,\n");
  EXPECT_EQ(
      refusal({.root = root_, .list = scratch_ / "files.csv"}),
      "files.csv, row 1, column 'label': the value to predict is missing; expected: a value in every row; "
      "fill it in, or remove the row");
}

// Weights follow their files when a broken one is dropped.
TEST_F(ImageFolders, DrawTheFilesOfAListByWeights) {
  for (int i = 0; i < 3; ++i) write_png(root_ / (std::to_string(i) + ".png"), 1, 1, 1, i);
  write("images/broken.png", "text");
  write("files.csv", "file,label,w\n0.png,a,1\nbroken.png,a,5\n1.png,a,0\n2.png,b,3\n");
  const LogLines log;
  ImageFolder data({.root = root_, .list = scratch_ / "files.csv", .weights = "w", .on_broken = "skip"},
                   {.batch_size = 1});
  std::vector<std::int64_t> counts(3);
  for (int epoch = 0; epoch < 400; ++epoch)
    for (const Batch& batch : *data.train_dataloader())
      ++counts.at(static_cast<std::size_t>(batch[0].item<std::int64_t>()));  // png_value(0, 0, 0, file)
  EXPECT_EQ(counts[1], 0);
  EXPECT_NEAR(static_cast<double>(counts[0]), 300, 60);  // of 1,200: 4 standard deviations
  EXPECT_NEAR(static_cast<double>(counts[2]), 900, 60);
}

TEST_F(ImageFolders, RefuseWrongWeights) {
  write_png(root_ / "a" / "1.png", 1, 1);
  write("files.csv", "file,label,w\na/1.png,a,-1\n");
  const auto list = scratch_ / "files.csv";
  EXPECT_EQ(refusal({.root = root_, .weights = "w"}),
            "data.weights: no list is set; expected: a column of data.list");
  EXPECT_EQ(refusal({.root = root_, .list = list, .weights = "w"}, {.sampler = "balanced"}),
            "data.weights: data.sampler is set, too; expected: one of them; weights draw the files by "
            "themselves");
  EXPECT_EQ(refusal({.root = root_, .list = list, .weights = "v"}),
            "data.weights: files.csv has no column 'v'; expected: one of file, label, w");
  EXPECT_EQ(refusal({.root = root_, .list = list, .weights = "w"}),
            "files.csv, row 1, column 'w': the weight -1; expected: a number that is at least 0");
  write("files.csv", "file,label,w\na/1.png,a,0\n");
  ImageFolder none({.root = root_, .list = list, .weights = "w"});
  none.prepare();
  EXPECT_NE(error_text<DataError>([&] {
              none.train_dataloader();
            }).find("files.csv, column 'w': all training files have the weight 0; expected: at least one"),
            std::string::npos);
}

TEST_F(ImageFolders, NeedASizeIfTheFilesDiffer) {
  write_png(root_ / "a" / "1.png", 2, 3);
  write_png(root_ / "a" / "2.png", 3, 2);
  EXPECT_EQ(refusal_of([&] { all_of({.root = root_}); }),
            "sample 1 of the data set, epoch 0: images/a/2.png: the image has 3 x 2 pixels (height x width); "
            "expected: 2 x 3, as images/a/1.png; set data.size to the height and width that all images are "
            "resized to");
  EXPECT_EQ(all_of({.root = root_, .size = {{4, 4}}})[0].sizes(), (at::IntArrayRef{2, 1, 4, 4}));
}

TEST_F(ImageFolders, NameABrokenFile) {
  write_png(root_ / "a" / "1.png", 2, 2);
  write("images/a/2.png", "\x89PNG\r\n\x1a\n");
  const char* const broken =
      "images/a/2.png: damaged PNG file: the file ends too early; download or copy it again, or remove it";
  EXPECT_EQ(refusal_of([&] { all_of({.root = root_}); }),
            std::string("sample 1 of the data set, epoch 0: ") + broken);
  std::filesystem::remove(root_ / "a" / "1.png");
  EXPECT_EQ(refusal({.root = root_}), broken);  // whose size and channels count
}

TEST_F(ImageFolders, SkipBrokenFilesWithAWarning) {
  for (int i = 0; i < 10; ++i) write_png(root_ / "a" / ("good" + std::to_string(i) + ".png"), 2, 2, 1, i);
  for (int i = 0; i < 7; ++i) write("images/a/bad" + std::to_string(i) + ".png", "text");
  LogLines log;
  ImageFolder data({.root = root_, .on_broken = "skip"}, {.batch_size = 100, .shuffle = false});
  data.prepare();
  const Batch batch = all_of(*data.train_dataloader());
  ASSERT_EQ(batch.num_samples(), 10);
  for (std::int64_t i = 0; i < 10; ++i) EXPECT_TRUE(same(batch[0][i], png_tensor(1, 2, 2, i)));
  std::string expected = "data.on_broken: skipped 7 of 17 images, which cannot be used:";
  for (int i = 0; i < 5; ++i)
    expected += "\n  images/a/bad" + std::to_string(i) +
                ".png: the file is not an image; expected: a PNG, JPEG, BMP, WebP or TIFF image";
  ASSERT_EQ(log.texts.size(), 1U);
  EXPECT_EQ(without_folder(log.texts[0]), expected + "\n  and 2 more; `kindling data check` lists all");
  const std::vector<std::string> skipped = data.skipped_samples();
  ASSERT_EQ(skipped.size(), 7U);
  EXPECT_EQ(without_folder(skipped[6]),
            "images/a/bad6.png: the file is not an image; expected: a PNG, JPEG, BMP, WebP or TIFF image");
  for (int i = 0; i < 10; ++i) std::filesystem::remove(root_ / "a" / ("good" + std::to_string(i) + ".png"));
  EXPECT_EQ(refusal({.root = root_, .on_broken = "skip"}),
            "images: all 7 images are broken; the first is images/a/bad0.png: the file is not an image; "
            "expected: a PNG, JPEG, BMP, WebP or TIFF image; expected: images that can be read");
}

TEST_F(ImageFolders, AreSplitByClass) {
  write_day_and_night(root_, 20);
  ImageFolder data({.root = root_, .val_fraction = 0.25, .stratify = true},
                   {.batch_size = 100, .shuffle = false});
  data.prepare();
  const Batch train = all_of(*data.train_dataloader()), val = all_of(*data.val_dataloader());
  EXPECT_EQ(train[1].sum().item<std::int64_t>(), 15);
  EXPECT_EQ(val[1].sum().item<std::int64_t>(), 5);
  EXPECT_EQ(val.num_samples(), 10);
  const SampleIds ids = data.predict_ids();
  ASSERT_EQ(ids.values.size(), 10U);
  EXPECT_TRUE(ids.values.front().starts_with("day/1") && ids.values.front().ends_with(".png"));
  EXPECT_TRUE(ids.values.back().starts_with("night/1"));
}

TEST_F(ImageFolders, HaveTheSameBatchesForAnyNumberOfWorkers) {
  write_day_and_night(root_, 20);
  std::vector<std::vector<Batch>> epochs;
  for (const std::int64_t workers : {0, 1, 4}) {
    ImageFolder data({.root = root_, .size = {{5, 6}}}, {.batch_size = 7, .seed = 3, .num_workers = workers});
    data.prepare();
    std::vector<Batch>& batches = epochs.emplace_back();
    for (int epoch = 0; epoch < 2; ++epoch)
      for (const Batch& batch : *data.train_dataloader())
        batches.push_back(Batch{batch[0].clone(), batch[1].clone()});
  }
  ASSERT_EQ(epochs[0].size(), 12U);
  for (const auto& batches : epochs) {
    ASSERT_EQ(batches.size(), 12U);
    for (std::size_t i = 0; i < batches.size(); ++i)
      for (std::size_t j = 0; j < 2; ++j) EXPECT_TRUE(same(batches[i][j], epochs[0][i][j]));
  }
  EXPECT_FALSE(epochs[0][0][0].equal(epochs[0][6][0]));  // another order in every epoch
}

TEST_F(ImageFolders, CanBeBalanced) {
  write_day_and_night(root_, 20);
  for (int i = 4; i < 20; ++i) std::filesystem::remove(root_ / "night" / (std::to_string(100 + i) + ".png"));
  ImageFolder data({.root = root_}, {.batch_size = 24, .sampler = "balanced"});
  data.prepare();
  std::int64_t num_night = 0;
  for (int epoch = 0; epoch < 50; ++epoch)
    for (const Batch& batch : *data.train_dataloader()) num_night += batch[1].sum().item<std::int64_t>();
  // Of 1,200 draws with probability 1/2: 600 ± 17.3, and four of these. All files alike would give 200.
  EXPECT_NEAR(static_cast<double>(num_night), 600, 70);
}

}  // namespace
}  // namespace kindling
