#include "cli/run/data_summary.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>

#include "kindling/base/error.h"
#include "kindling/data/digits.h"
#include "support/scratch.h"

namespace kindling {
namespace {

namespace fs = std::filesystem;

std::shared_ptr<DataLoader> loader_of(std::vector<at::Tensor> tensors, std::int64_t batch_size = 2) {
  return std::make_shared<DataLoader>(std::make_shared<TensorDataset>(std::move(tensors)),
                                      DataLoaderOptions{.batch_size = batch_size});
}

struct Sets : DataModule {
  std::shared_ptr<DataLoader> train, val, test;
  std::shared_ptr<DataLoader> train_dataloader() override { return train; }
  std::shared_ptr<DataLoader> val_dataloader() override { return val; }
  std::shared_ptr<DataLoader> test_dataloader() override {
    if (!test) throw DataError({.found = "no test data"});
    return test;
  }
};

struct Computed : Dataset {
  std::int64_t size() const override { return 7; }
  void gather(const at::Tensor&, Batch&) const override {}
};

TEST(DataSummary, CountsTheSamplesOfEachSet) {
  Sets data;
  data.train = loader_of({at::ones({5, 3})});
  DataSummary summary = summary_of(data, "mine");
  EXPECT_EQ(summary.name, "mine");
  EXPECT_EQ(summary.train, 5);
  EXPECT_FALSE(summary.val);
  data.val = loader_of({at::ones({3})});
  summary = summary_of(data, "mine");
  EXPECT_EQ(summary.val, 3);
  EXPECT_EQ(summary_of(*std::make_unique<Digits>(), "").train, 1438);
}

TEST(DataSummary, NamesTheFirstClassThatDiffers) {
  EXPECT_EQ(class_difference({"cat", "dog"}, {"cat", "dog"}), "");
  EXPECT_EQ(class_difference({"cat", "dog"}, {}), "");
  EXPECT_EQ(class_difference({}, {"cat"}), "");
  EXPECT_EQ(class_difference({"cat", "dog"}, {"bird", "cat", "dog"}),
            "class 0 was 'cat' before and is 'bird' now");
  EXPECT_EQ(class_difference({"cat"}, {"cat", "dog"}), "class 1 was not there before and is 'dog' now");
  EXPECT_EQ(class_difference({"cat", "dog"}, {"cat"}), "class 1 was 'dog' before and is not there now");
  EXPECT_EQ(difference_of({.class_names = {"cat"}}, {.class_names = {"dog"}}),
            "class 0 was 'cat' before and is 'dog' now");
}

TEST(DataSummary, HasAChecksumOfTypesSizesAndBytes) {
  const auto checksum = [](std::shared_ptr<DataLoader> train, std::shared_ptr<DataLoader> val = nullptr) {
    Sets data;
    data.train = std::move(train);
    data.val = std::move(val);
    return summary_of(data, "").checksum;
  };
  const at::Tensor numbers = at::arange(6, at::kFloat).view({3, 2});
  const std::string expected = checksum(loader_of({numbers}));
  EXPECT_EQ(expected.size(), 16U);
  EXPECT_EQ(checksum(loader_of({numbers.clone()}, /*batch_size=*/3)), expected);
  EXPECT_EQ(checksum(loader_of({numbers.t().contiguous().t()})), expected);  // the same values, other strides
  EXPECT_NE(checksum(loader_of({numbers.view({6})})), expected);
  EXPECT_NE(checksum(loader_of({numbers.to(at::kInt)})), expected);
  EXPECT_NE(checksum(loader_of({numbers + (numbers == 5)})), expected);
  EXPECT_NE(checksum(loader_of({numbers, numbers})), checksum(loader_of({numbers}), loader_of({numbers})));
}

// Former versions rounded tables and arrays when they loaded them.
TEST(DataSummary, IsTheSameAsThatOfAFormerVersion) {
  const auto summary = [](const at::Tensor& x) {
    Sets data;
    data.train = loader_of({x, at::ones({3})});
    return summary_of(data, "");
  };
  const at::Tensor x = at::arange(6, at::kDouble).view({3, 2}) / 7;
  const DataSummary former = summary(x.to(at::kFloat)), now = summary(x), other = summary(x + 1e-12);
  EXPECT_EQ(difference_of(former, now), "");
  EXPECT_EQ(difference_of(now, now), "");
  EXPECT_EQ(difference_of(now, other), "the same number of samples with other values");
  EXPECT_EQ(difference_of(former, summary(x + 1)), "the same number of samples with other values");
  EXPECT_EQ(former.float32_checksum, "");
}

TEST(DataSummary, HasNoChecksumOfLargeOrComputedData) {
  Sets data;
  data.train = loader_of({at::ones({4, 2}), at::ones({4})});
  EXPECT_EQ(summary_of(data, "", 48).checksum.size(), 16U);
  EXPECT_EQ(summary_of(data, "", 47).checksum, "");
  data.val = std::make_shared<DataLoader>(std::make_shared<Computed>(), DataLoaderOptions{});
  EXPECT_EQ(summary_of(data, "").checksum, "");
}

TEST(DataFilesOfAConfig, AreFoundAndCompared) {
  const Scratch scratch;
  const auto write = [&](const char* name, const std::string& text) {
    fs::create_directories((scratch / name).parent_path());
    std::ofstream(scratch / name) << text;
    const std::chrono::sys_seconds time = std::chrono::sys_days{std::chrono::year{2024} / 2 / 29};
    fs::last_write_time(scratch / name, std::chrono::file_clock::from_sys(time));
  };
  write("a.csv", "12345");
  write("parts/p1.npy", "12");
  write("parts/p2.npy", "123");
  write("parts/notes.txt", "1");
  const auto found = [&] {
    return data_files({{"data.file", "\"" + (scratch / "a.csv").string() + "\""},
                       {"data.inputs", "[\"" + (scratch / "parts/p*.npy").string() + "\", \"" +
                                           (scratch / "parts").string() + "\"]"},
                       {"data.label", "\"/not/a/file\""},
                       {"run.dir", "\"" + scratch.folder().string() + "\""}});
  };
  const std::vector<DataFiles> before = found();
  ASSERT_EQ(before.size(), 3U);
  EXPECT_EQ(before[0].path, scratch / "a.csv");
  EXPECT_EQ(before[0].count, 1);
  EXPECT_EQ(before[0].bytes, 5);
  EXPECT_EQ(before[0].modified, "2024-02-29T00:00:00Z");
  EXPECT_EQ(before[1].count, 2);
  EXPECT_EQ(before[1].bytes, 5);
  EXPECT_EQ(before[2].count, 3);
  EXPECT_EQ(before[2].bytes, 6);
  EXPECT_TRUE(changed_files(before, found()).empty());

  fs::last_write_time(scratch / "a.csv", fs::last_write_time(scratch / "a.csv") + std::chrono::hours(1));
  write("parts/p3.npy", "1234");
  const std::vector<std::string> changed = changed_files(before, found());
  ASSERT_EQ(changed.size(), 3U);
  EXPECT_EQ(changed[0], (scratch / "a.csv").string() +
                            " was last modified at 2024-02-29T00:00:00Z and now at "
                            "2024-02-29T01:00:00Z");
  EXPECT_EQ(changed[1],
            (scratch / "parts/p*.npy").string() + " had 2 files of 5 bytes and now has 3 files of 9 bytes");
  EXPECT_TRUE(changed[2].ends_with(" had 3 files of 6 bytes and now has 4 files of 10 bytes")) << changed[2];
}

}  // namespace
}  // namespace kindling
