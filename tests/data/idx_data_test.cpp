#include "kindling/data/idx_data.h"

#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include <fstream>

#include "kindling/base/error.h"
#include "support/mnist_files.h"
#include "support/scratch.h"
#include "support/tensor_matchers.h"

namespace kindling {
namespace {

std::filesystem::path write(const std::filesystem::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
  return path;
}

// n images of 1 x 2 pixels: image i is {i, 255}; labels i.
std::string images_file(int n) {
  std::string bytes{0, 0, 8, 3, 0, 0, 0, static_cast<char>(n), 0, 0, 0, 1, 0, 0, 0, 2};
  for (int i = 0; i < n; ++i) bytes += {static_cast<char>(i), static_cast<char>(255)};
  return bytes;
}
std::string labels_file(int n) {
  std::string bytes{0, 0, 8, 1, 0, 0, 0, static_cast<char>(n)};
  for (int i = 0; i < n; ++i) bytes += static_cast<char>(i);
  return bytes;
}

IdxOptions pair_in(const Scratch& scratch, int num_images, int num_labels) {
  return {.images = write(scratch / "images", images_file(num_images)),
          .labels = write(scratch / "labels", labels_file(num_labels))};
}

Batch first_batch(DataModule& data, DataLoader& loader) {
  Batch batch;
  loader.start_epoch(0);
  EXPECT_TRUE(loader.next(batch));
  return data.on_after_batch_transfer(std::move(batch));
}

TEST(IdxData, PixelsAreDividedBy255) {
  const Scratch scratch;
  IdxData data(pair_in(scratch, 3, 3), {.shuffle = false});
  data.prepare_data();
  const Batch batch = first_batch(data, *data.train_dataloader());
  EXPECT_EQ(batch[0].sizes(), (std::vector<std::int64_t>{3, 1, 1, 2}));
  EXPECT_TRUE(same(batch[0].flatten(), at::tensor({0.f, 1.f, 1.f / 255, 1.f, 2.f / 255, 1.f})));
  EXPECT_TRUE(same(batch[1], at::tensor({0, 1, 2}, at::kLong)));
}

TEST(IdxData, NormalizeSubtractsTheMeanAndDividesByTheDeviation) {
  const Scratch scratch;
  IdxOptions options = pair_in(scratch, 1, 1);
  options.normalize = {{0.25, 0.5}};
  IdxData data(options);
  const Batch batch = first_batch(data, *data.train_dataloader());
  EXPECT_TRUE(same(batch[0].flatten(), at::tensor({-0.5f, 1.5f})));
}

TEST(IdxData, WithoutARangeThereIsNoValidation) {
  const Scratch scratch;
  EXPECT_EQ(IdxData(pair_in(scratch, 3, 3)).val_dataloader(), nullptr);
}

TEST(IdxData, RangesSplitTheOnePairOfFiles) {
  const Scratch scratch;
  IdxData data(pair_in(scratch, 5, 5), {.shuffle = false, .train = {{0, 3}}, .val = {{3, 5}}});
  EXPECT_TRUE(same(first_batch(data, *data.train_dataloader())[1], at::tensor({0, 1, 2}, at::kLong)));
  EXPECT_TRUE(same(first_batch(data, *data.val_dataloader())[1], at::tensor({3, 4}, at::kLong)));
}

TEST(IdxData, MissingFilesAreNamedBeforeAnythingIsRead) {
  const Scratch scratch;
  const auto images = write(scratch / "images", images_file(1));
  EXPECT_NE(error_text<ConfigError>([] { IdxData({}).prepare_data(); }).find("data.images: no file is given"),
            std::string::npos);
  const std::string text =
      error_text<DataError>([&] { IdxData({.images = images, .labels = scratch / "gone"}).prepare_data(); });
  EXPECT_EQ(text, (scratch / "gone").string() +
                      ": no such file; expected: the IDX file of data.labels; relative paths are relative to "
                      "the config file's directory");
}

TEST(IdxData, RejectsFilesThatDoNotMatch) {
  const Scratch scratch;
  const IdxOptions options = pair_in(scratch, 3, 2);
  const std::string images = options.images.string(), labels = options.labels.string();
  EXPECT_EQ(error_text<DataError>([&] { IdxData(options).train_dataloader(); }),
            images + ": 3 images, but 2 labels in " + labels + "; expected: as many labels as images");
  const std::string swapped = error_text<DataError>(
      [&] { IdxData({.images = options.labels, .labels = options.images}).train_dataloader(); });
  EXPECT_EQ(swapped, labels +
                         ": the array is Byte [2]; expected: images: Byte [n, height, width] or [n, "
                         "channels, height, width]");
}

TEST(IdxData, DeviationMustBePositive) { EXPECT_THROW(IdxData({.normalize = {{0.5, 0.0}}}), DataError); }

TEST(Mnist, ReadsTheFourFiles) {
  const Scratch scratch;
  write(scratch / "train-images-idx3-ubyte", images_file(4));
  write(scratch / "train-labels-idx1-ubyte", labels_file(4));
  write(scratch / "t10k-images-idx3-ubyte", images_file(2));
  write(scratch / "t10k-labels-idx1-ubyte", labels_file(2));
  Mnist data({.root = scratch.folder()});
  data.prepare_data();
  EXPECT_EQ(data.train_dataloader()->dataset().size(), 4);
  EXPECT_EQ(data.val_dataloader()->dataset().size(), 2);
}

TEST(Mnist, MissingFilesSayWhichFourAndWhereToPutThem) {
  const Scratch scratch;
  const std::string text =
      error_text<DataError>([&] { FashionMnist({.root = scratch.folder()}).prepare_data(); });
  const std::string root = scratch.folder().string();
  EXPECT_EQ(text, root +
                      "/train-images-idx3-ubyte[.gz]: no such file; expected: train-images-idx3-ubyte, "
                      "train-labels-idx1-ubyte, t10k-images-idx3-ubyte and t10k-labels-idx1-ubyte, each with "
                      "or without .gz, in " +
                      root + "; docs/reference/data_files.md says where to download them");
}

TEST(Mnist, RealFilesAreReadCompressed) {
  if (!has_mnist()) GTEST_SKIP() << missing_mnist();
  IdxData data({.images = mnist_images(), .labels = mnist_labels()}, {.batch_size = 4, .shuffle = false});
  EXPECT_EQ(data.train_dataloader()->dataset().size(), 10000);
  const Batch batch = first_batch(data, *data.train_dataloader());
  EXPECT_EQ(batch[0].sizes(), (std::vector<std::int64_t>{4, 1, 28, 28}));
  EXPECT_TRUE(same(batch[1], at::tensor({7, 2, 1, 0}, at::kLong)));  // the set's well-known beginning
  EXPECT_EQ(batch[0].max().item<float>(), 1);
}

}  // namespace
}  // namespace kindling
