// Image files in a table, with a label, several labels or numbers.
#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "data/image_folders.h"
#include "kindling/base/error.h"
#include "kindling/data/data_loader.h"
#include "kindling/data/image_folder.h"
#include "kindling/formats/image.h"
#include "support/image_files.h"
#include "support/log_lines.h"
#include "support/scratch.h"
#include "support/tensor_matchers.h"

namespace kindling {
namespace {

class ImageLists : public ImageFolders {};

// The columns of other tools: filename and class of Keras, fname and labels of fastai.
TEST_F(ImageLists, MayHaveOtherColumnsInTheirList) {
  write_png(root_ / "x.png", 2, 2, 1, 1);
  write_png(root_ / "y.png", 2, 2, 1, 2);
  write("list.csv", "filename,class,label\ny.png,b,1\nx.png,a,2\n");
  const auto list = scratch_ / "list.csv";
  const Batch all = all_of({.root = root_, .list = list, .image = "filename", .label = "class"});
  EXPECT_TRUE(same(all[0], at::stack({png_tensor(1, 2, 2, 2), png_tensor(1, 2, 2, 1)})));
  EXPECT_TRUE(same(all[1], at::tensor({1, 0}, at::kLong)));
  EXPECT_EQ(refusal({.root = root_, .list = list, .image = "path"}),
            "list.csv: no column has the name 'path'; expected: one of filename, class, label");
  EXPECT_EQ(refusal({.root = root_, .image = "path"}),
            "data.image: no list is set; expected: a table of the images, data.list");
}

TEST_F(ImageLists, MayHaveSeveralLabelsPerImage) {
  for (int i = 0; i < 4; ++i) write_png(root_ / (std::to_string(i) + ".png"), 1, 1, 1, i);
  write("images/broken.png", "text");
  write("list.csv", "file,label\n0.png,dog;cat\n1.png,\nbroken.png,cow\n2.png,cat\n3.png,cat; dog\n");
  const LogLines log(LogLevel::info);
  ImageFolder data(
      {.root = root_, .list = scratch_ / "list.csv", .label_separator = ";", .on_broken = "skip"},
      {.batch_size = 3, .shuffle = false});
  data.prepare();
  EXPECT_EQ(data.class_names(), (std::vector<std::string>{"cat", "cow", "dog"}));
  std::vector<at::Tensor> labels;
  for (const Batch& batch : *data.train_dataloader()) labels.push_back(batch[1].clone());
  ASSERT_EQ(labels.size(), 2U);  // the second one is smaller
  EXPECT_TRUE(same(at::cat(labels),
                   at::tensor({1, 0, 1, 0, 0, 0, 1, 0, 0, 1, 0, 1}, at::kLong).view({4, 3}).to(at::kByte)));
  EXPECT_EQ(without_folder(log.texts.front()),
            "list.csv: 1 of 5 files have no label, which is 0 for every class");

  ImageFolder split({.root = root_,
                     .list = scratch_ / "list.csv",
                     .label_separator = ";",
                     .val_fraction = 0.5,
                     .stratify = true,
                     .on_broken = "skip"},
                    {.batch_size = 4, .shuffle = false});
  split.prepare();
  EXPECT_TRUE(same(all_of(*split.train_dataloader())[1].sum(0) + all_of(*split.val_dataloader())[1].sum(0),
                   at::tensor({3, 0, 2}, at::kLong)));
  EXPECT_EQ(
      refusal({.root = root_, .list = scratch_ / "list.csv", .label_separator = ";"},
              {.sampler = "balanced"}),
      "data.sampler: it is \"balanced\", and the list has no single class per file; expected: data.weights, "
      "a column by which files are drawn");
  EXPECT_EQ(
      refusal({.root = root_, .list = scratch_ / "list.csv", .label_separator = ";", .val_root = root_}),
      "data.val_root: it is set, and the list has no single class per file; expected: val_fraction, folds, "
      "or ranges in train and val");
}

TEST_F(ImageLists, MayHaveNumbersToPredict) {
  for (int i = 0; i < 3; ++i) write_png(root_ / (std::to_string(i) + ".png"), 1, 1, 1, i);
  write("list.csv", "file,age,height\n2.png,7.5,100\n0.png,1,50\n1.png,3,80\n");
  const ImageFolderOptions options{.root = root_, .list = scratch_ / "list.csv", .target = {"height", "age"}};
  EXPECT_TRUE(same(all_of(options)[1], at::tensor({100.F, 7.5F, 50.F, 1.F, 80.F, 3.F}).view({3, 2})));
  ImageFolder data(options);
  EXPECT_TRUE(data.class_names().empty());
  write("list.csv", "file,age\n2.png,old\n0.png,new\n");
  EXPECT_EQ(refusal({.root = root_, .list = scratch_ / "list.csv", .target = {"age"}}),
            "list.csv, column 'age': the values to predict are texts; expected: numbers; for classes, set "
            "data.label instead of data.target");
}

TEST_F(ImageLists, CountTheRowsWithoutAFile) {
  write_png(root_ / "x.png", 1, 1);
  write("list.csv", "file,label\nx.png,a\nno.png,b\n,a\n");
  EXPECT_EQ(
      refusal({.root = root_, .list = scratch_ / "list.csv"}),
      "list.csv, row 2, column 'file': there is no file images/no.png (2 of 3 rows have none); expected: "
      "a PNG, JPEG, BMP, WebP or TIFF file; correct the row, or set data.root to the directory of the "
      "files");
}

TEST_F(ImageLists, RefuseBoxes) {
  write_png(root_ / "x.png", 1, 1);
  write_png(root_ / "y.png", 1, 1);
  const auto list = scratch_ / "list.csv";
  const auto log_of = [&] {
    const LogLines log;
    all_of({.root = root_, .list = list});
    return log.texts.empty() ? "" : without_folder(log.texts.front());
  };
  write("list.csv", "file,label,xmin,ymin,xmax,ymax\nx.png,a,0,0,1,1\n./x.png,b,1,1,2,2\n");
  EXPECT_EQ(
      refusal({.root = root_, .list = list}),
      "list.csv: the columns xmin, ymin, xmax, ymax with boxes, and several rows for a file; expected: a "
      "row per image, with the labels of the whole image; Kindling has no detection");
  write("list.csv", "file,label,bbox\nx.png,a,1 1 2 2\ny.png,b,1 1 2 2\n");
  EXPECT_EQ(log_of(),
            "list.csv: the column bbox looks like boxes, and is not read: Kindling has no detection");
  EXPECT_EQ(
      refusal({.root = root_, .list = list, .label = "bbox"}),
      "list.csv: the column bbox with boxes, which the config predicts; expected: a row per image, with the "
      "labels of the whole image; Kindling has no detection");
  write("list.csv", "file,label\nx.png,a\ny.png,b\nx.png,b\n");
  EXPECT_EQ(log_of(),
            "list.csv: 1 row names the file of another row, the first: row 3, as row 1, x.png; a split may "
            "validate on files that it trains on, and several labels of a file belong into one cell "
            "(data.label_separator)");
}

}  // namespace
}  // namespace kindling
