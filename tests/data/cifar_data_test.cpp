#include "kindling/data/cifar_data.h"

#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "kindling/base/error.h"
#include "support/scratch.h"
#include "support/tensor_matchers.h"

namespace kindling {
namespace {

constexpr std::size_t kPixels = 3072;

// A record whose red, green and blue values are `shade`, `shade` + 1 and `shade` + 2.
std::string cifar_record(const std::vector<int>& labels, int shade) {
  std::string bytes;
  for (const int label : labels) bytes += static_cast<char>(label);
  for (int channel = 0; channel < 3; ++channel)
    bytes += std::string(kPixels / 3, static_cast<char>(shade + channel));
  return bytes;
}

class Cifar : public testing::Test {
 protected:
  void write(const std::string& name, const std::string& bytes) const {
    std::filesystem::create_directories((scratch_ / name).parent_path());
    std::ofstream(scratch_ / name, std::ios::binary) << bytes;
  }
  // Two images per training file, labels 0 … 9 and shades 10 · label, and one test image.
  void write_cifar10(const std::string& folder) const {
    for (int i = 0; i < 5; ++i)
      write(folder + "data_batch_" + std::to_string(i + 1) + ".bin",
            cifar_record({2 * i}, 20 * i) + cifar_record({2 * i + 1}, 20 * i + 10));
    write(folder + "test_batch.bin", cifar_record({7}, 200));
  }
  void write_cifar100() const {
    write("train.bin", cifar_record({3, 99}, 0) + cifar_record({19, 5}, 50));
    write("test.bin", cifar_record({0, 42}, 100));
  }
  static Batch all_of(DataLoader& loader) {
    loader.start_epoch(0);
    Batch batch;
    EXPECT_TRUE(loader.next(batch));
    return batch;
  }
  std::string refusal(DataModule& data) const {
    std::string text = error_text<DataError>([&] { data.train_dataloader(); });
    const std::string folder = scratch_.folder().string() + "/";
    for (std::size_t at = 0; (at = text.find(folder)) != std::string::npos;) text.erase(at, folder.size());
    return text;
  }
  Scratch scratch_;
};

TEST_F(Cifar, ReadsTheFiveTrainingFilesInOrderAndTheTestFile) {
  write_cifar10("");
  Cifar10 data({.root = scratch_.folder()}, {.shuffle = false});
  data.prepare();
  const Batch train = all_of(*data.train_dataloader());
  EXPECT_EQ(train[0].sizes(), (std::vector<std::int64_t>{10, 3, 32, 32}));
  EXPECT_TRUE(same(train[1].to(at::kLong), at::arange(10)));
  EXPECT_TRUE(same(train[0].select(2, 31).select(2, 31).to(at::kLong),
                   at::arange(10).mul(10).unsqueeze(1) + at::arange(3)));  // the last pixel of each channel
  const Batch test = all_of(*data.val_dataloader());
  EXPECT_TRUE(same(test[1].to(at::kLong), at::tensor({7}, at::kLong)));
  const Batch scaled = data.on_after_batch_transfer(test);
  EXPECT_TRUE(same(scaled[0].amax({0, 2, 3}), at::tensor({200.f / 255, 201.f / 255, 202.f / 255})));
  EXPECT_EQ(scaled[1].scalar_type(), at::kLong);
}

TEST_F(Cifar, FindsTheDirectoryOfTheArchiveAndTheDataDirectory) {
  write_cifar10("cifar10/cifar-10-batches-bin/");
  EXPECT_EQ(Cifar10({.root = scratch_ / "cifar10"}).train_dataloader()->dataset().size(), 10);
  const char* const set = std::getenv("KINDLING_DATA");
  const std::string former = set == nullptr ? "" : set;
  ::setenv("KINDLING_DATA", scratch_.folder().c_str(), 1);
  EXPECT_EQ(Cifar10({}).train_dataloader()->dataset().size(), 10);
  if (set == nullptr)
    ::unsetenv("KINDLING_DATA");
  else
    ::setenv("KINDLING_DATA", former.c_str(), 1);
}

TEST_F(Cifar, HundredClassesHaveFineAndCoarseLabels) {
  write_cifar100();
  Cifar100 fine({.root = scratch_.folder()}, {.shuffle = false});
  EXPECT_TRUE(same(all_of(*fine.train_dataloader())[1].to(at::kLong), at::tensor({99, 5}, at::kLong)));
  EXPECT_EQ(all_of(*fine.train_dataloader())[0][1].min().item<int>(), 50);
  Cifar100 coarse({.root = scratch_.folder(), .labels = "coarse"}, {.shuffle = false});
  EXPECT_TRUE(same(all_of(*coarse.train_dataloader())[1].to(at::kLong), at::tensor({3, 19}, at::kLong)));
  EXPECT_THROW(Cifar100({.labels = "middle"}), ConfigError);
}

TEST_F(Cifar, ClassNamesComeFromTheTextFileOfTheArchive) {
  write_cifar10("");
  Cifar10 data({.root = scratch_.folder()});
  EXPECT_TRUE(data.class_names().empty());
  write("batches.meta.txt", "airplane\nautomobile\nbird\r\ncat\ndeer\ndog\nfrog\nhorse\nship\ntruck\n\n");
  EXPECT_EQ(data.class_names(), (std::vector<std::string>{"airplane", "automobile", "bird", "cat", "deer",
                                                          "dog", "frog", "horse", "ship", "truck"}));
  write("batches.meta.txt", "airplane\n");
  EXPECT_EQ(error_text<DataError>([&] { data.class_names(); }),
            (scratch_ / "batches.meta.txt").string() +
                ": the file has 1 names; expected: 10 names of classes, one per line");
}

TEST_F(Cifar, MissingFilesAreNamedWithThePageThatHelps) {
  write_cifar10("");
  std::filesystem::remove(scratch_ / "data_batch_3.bin");
  Cifar10 data({.root = scratch_.folder()});
  const std::string root = scratch_.folder().string();
  EXPECT_EQ(error_text<DataError>([&] { data.prepare_data(); }),
            root +
                "/data_batch_3.bin: no such file; expected: data_batch_1.bin, data_batch_2.bin, "
                "data_batch_3.bin, data_batch_4.bin, data_batch_5.bin, test_batch.bin of the data set's "
                "binary version in " +
                root +
                " or in its parent directory; docs/reference/data_files.md says where to download them");
}

TEST_F(Cifar, SizesMustBeWholeRecords) {
  write_cifar10("");
  write("data_batch_2.bin", cifar_record({1}, 0) + "x");
  Cifar10 data({.root = scratch_.folder()});
  EXPECT_EQ(refusal(data),
            "data_batch_2.bin: the file has 3074 bytes; expected: a multiple of 3073: 1 label byte and 3,072 "
            "bytes of pixels per image; unpack the binary version of the data set again");
  EXPECT_THROW(data.prepare_data(), DataError);
  write("data_batch_2.bin", "");
  EXPECT_EQ(refusal(data).find("data_batch_2.bin: the file has 0 bytes"), 0u);
  write_cifar100();
  write("test.bin", cifar_record({1}, 0));
  Cifar100 hundred({.root = scratch_.folder()});
  EXPECT_EQ(refusal(hundred).find(
                "test.bin: the file has 3073 bytes; expected: a multiple of 3074: 2 label bytes and"),
            0u);
}

// A sparse file can claim any size.
TEST_F(Cifar, RefusesFilesThatNoMemoryCanHold) {
  write_cifar10("");
  std::filesystem::resize_file(scratch_ / "data_batch_2.bin", std::uintmax_t{3073} * 1'000'000'000);
  Cifar10 data({.root = scratch_.folder()});
  EXPECT_EQ(refusal(data),
            "data_batch_2.bin: the file has 3073000000000 bytes; expected: at most 3073000000");
}

TEST_F(Cifar, LabelsMustBeClasses) {
  write_cifar10("");
  write("data_batch_4.bin", cifar_record({1}, 0) + cifar_record({10}, 0));
  Cifar10 data({.root = scratch_.folder()});
  EXPECT_EQ(refusal(data),
            "data_batch_4.bin: the label 10 at byte 3073 (image 1); expected: labels below 10");
  write_cifar100();
  write("train.bin", cifar_record({20, 0}, 0));
  EXPECT_EQ(Cifar100({.root = scratch_.folder()}).train_dataloader()->dataset().size(), 1);
  Cifar100 coarse({.root = scratch_.folder(), .labels = "coarse"});
  EXPECT_EQ(refusal(coarse), "train.bin: the label 20 at byte 0 (image 0); expected: labels below 20");
}

// More than are read at once.
TEST_F(Cifar, ReadsManyRecords) {
  write_cifar10("");
  std::string bytes;
  for (int i = 0; i < 600; ++i) bytes += cifar_record({i % 10}, i % 200);
  write("test_batch.bin", bytes);
  Cifar10 data({.root = scratch_.folder()}, {.batch_size = 1000});
  const Batch test = all_of(*data.val_dataloader());
  EXPECT_TRUE(same(test[1].to(at::kLong), at::arange(600).remainder(10)));
  EXPECT_TRUE(
      same(test[0].select(1, 1).select(1, 0).select(1, 0).to(at::kLong), at::arange(600).remainder(200) + 1));
}

}  // namespace
}  // namespace kindling
