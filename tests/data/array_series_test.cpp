// Pairs in time of many files and of large states, and data modules around them.
#include "data/loading/array_series.h"

#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "data/loading/pair_dataset.h"
#include "data/loading/stored_dataset.h"
#include "data/sources/training_labels.h"
#include "kindling/base/error.h"
#include "kindling/data/array_data.h"
#include "kindling/data/crop_transforms.h"
#include "kindling/data/image_transforms.h"
#include "kindling/data/transformed_data.h"
#include "kindling/tensors/state_dict.h"
#include "support/scratch.h"

namespace kindling {
namespace {

using RowsOfPairs = std::vector<std::pair<int, int>>;

// States [rows, 2] of which the first number is the row of the joined files.
class ArraySeries : public testing::Test {
 protected:
  void write(const std::string& name, std::int64_t begin, std::int64_t end,
             const std::vector<std::int64_t>& series) {
    const at::Tensor rows = at::arange(begin, end, at::kFloat).unsqueeze(1).repeat({1, 2});
    save_safetensors({.tensors = {{"x", rows}, {"run", at::tensor(series, at::kLong)}}, .metadata = {}},
                     scratch_ / name);
  }
  static RowsOfPairs in(const std::shared_ptr<DataLoader>& loader) {
    RowsOfPairs pairs;
    const Batch all = loader->dataset().slice(0, loader->dataset().size());
    for (std::int64_t i = 0; i < all[0].size(0); ++i)
      pairs.emplace_back(all[0][i][0].item<int>(), all.labels()[i][0].item<int>());
    return pairs;
  }

  Scratch scratch_;
};

TEST_F(ArraySeries, EndAtTheEndOfEachFile) {
  write("run_0.safetensors", 0, 3, {0, 0, 1});
  write("run_1.safetensors", 3, 7, {0, 0, 1, 1});
  ArrayDataOptions options{.file = scratch_ / "run_*.safetensors", .inputs = "x", .horizon = 1};
  ArrayData files(options, {.batch_size = 3});
  EXPECT_EQ(in(files.train_dataloader()), (RowsOfPairs{{0, 1}, {1, 2}, {3, 4}, {4, 5}, {5, 6}}));
  ArrayData second(options, {.batch_size = 3, .val = {{1, 2}}});
  EXPECT_EQ(in(second.train_dataloader()), (RowsOfPairs{{0, 1}, {1, 2}}));
  EXPECT_EQ(in(second.val_dataloader()), (RowsOfPairs{{3, 4}, {4, 5}, {5, 6}})) << "of the second file";
  options.series = "run";
  ArrayData numbered(options, {.batch_size = 3});
  EXPECT_EQ(in(numbered.train_dataloader()), (RowsOfPairs{{0, 1}, {3, 4}, {5, 6}}))
      << "the numbers begin at 0 in each file";
}

TEST_F(ArraySeries, HaveNumbersOfTheRowsOfEachFile) {
  write("run_0.safetensors", 0, 3, {0, 0});
  write("run_1.safetensors", 3, 7, {0, 0, 0, 1, 1});
  ArrayData data({.file = scratch_ / "run_*.safetensors", .inputs = "x", .horizon = 1, .series = "run"}, {});
  const std::string text = error_text<DataError>([&] { data.prepare(); });
  EXPECT_NE(text.find("run_0.safetensors has 2 samples of it; expected: 3, as of 'x'"), std::string::npos)
      << text;
}

TEST_F(ArraySeries, RefuseToRepeatMoreThanFitsIntoMemory) {
  // 2^54 bytes, if they were repeated.
  const SourceArray array{.file = "a.npz", .name = "nu", .values = at::zeros({1}).expand({4, 1 << 20})};
  const std::string text =
      error_text<DataError>([&] { rows_of_series(array, {.num_series = 4, .num_times = 1 << 30}); });
  EXPECT_TRUE(
      text.starts_with("a.npz, array 'nu': repeated for each of 1073741824 times, it has 16384 TiB; "
                       "expected: at most "))
      << text;
}

TEST_F(ArraySeries, AreReadInSlicesOf16MiB) {
  const auto states = std::make_shared<TensorDataset>(std::vector{at::zeros({4, 1 << 20})});  // 4 MiB each
  EXPECT_EQ(samples_at_once(PairDataset(states, states, {.inputs = {0, 1, 2}, .targets = {1, 2, 3}})), 2);
  EXPECT_EQ(samples_at_once(*states), 256) << "slices are views";
}

TEST_F(ArraySeries, RefuseASecondScaleBeforeAllSamplesAreRead) {
  struct Counting : Dataset {
    std::int64_t size() const override { return 1000; }
    void gather(const at::Tensor& indices, Batch& batch) const override {
      num_read += indices.size(0);
      batch = Batch({at::ones({indices.size(0), 2}), at::ones({indices.size(0), 2})});
    }
    mutable std::int64_t num_read = 0;
  };
  struct Scaled : DataModule {
    std::shared_ptr<DataLoader> train_dataloader() override { return loader; }
    at::Tensor unscale_targets(const at::Tensor& values) override { return values * 2; }
    std::shared_ptr<DataLoader> loader{};
  };
  const auto counting = std::make_shared<Counting>();
  Scaled data;
  data.loader = std::make_shared<DataLoader>(counting, DataLoaderOptions{.batch_size = 10});
  EXPECT_EQ(error_text<ConfigError>([&] { training_target_parts(data); }),
            "model.scale_target: the data scale the targets already; expected: one scale of the targets; set "
            "model.scale_target = false");
  EXPECT_EQ(counting->num_read, 1);
}

TEST_F(ArraySeries, AreRolledOutWithTransformsOfInputsAndTargetsAlikeOnly) {
  const at::Tensor states = at::arange(3 * 6 * 16, at::kFloat).view({3, 6, 1, 4, 4});
  save_safetensors({.tensors = {{"x", states}}, .metadata = {}}, scratch_ / "x.safetensors");
  const auto rollouts_with = [&](const StageTransforms& transforms) {
    const auto data = std::make_shared<ArrayData>(
        ArrayDataOptions{
            .file = scratch_ / "x.safetensors", .horizon = 1, .layout = "series_time", .rollout_steps = 2},
        DataOptions{.batch_size = 4, .val = {{2, 3}}});
    TransformedData transformed(data, transforms);
    return transformed.rollouts().num_steps;
  };
  const auto normalize = std::make_shared<Normalize>(NormalizeOptions{.mean = {3}, .std = {2}});
  const std::string wrong =
      ": they change the inputs and not the targets, and data.rollout_steps is set; expected: inputs that "
      "are states like the targets; scale both with data.normalize_by";
  EXPECT_EQ(error_text<ConfigError>([&] { rollouts_with({.val = normalize}); }),
            "data.val_transforms" + wrong);
  EXPECT_EQ(error_text<ConfigError>([&] { rollouts_with({.train = normalize}); }),
            "data.train_transforms" + wrong);
  EXPECT_EQ(rollouts_with({.train = std::make_shared<RandomHorizontalFlip>()}), 2);
}

}  // namespace
}  // namespace kindling
