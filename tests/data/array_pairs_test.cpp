// Pairs in time from one array: data.horizon, data.series, data.layout and data.normalize_by.
#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "data/loading/array_series.h"
#include "data/loading/pair_dataset.h"
#include "kindling/base/error.h"
#include "kindling/data/array_data.h"
#include "kindling/data/input_transform.h"
#include "kindling/tensors/state_dict.h"
#include "support/log_lines.h"
#include "support/scratch.h"
#include "support/tensor_matchers.h"

namespace kindling {
namespace {

using Pairs = std::vector<std::pair<int, int>>;

class ArrayPairs : public testing::Test {
 protected:
  std::filesystem::path write(std::vector<std::pair<std::string, at::Tensor>> tensors,
                              const std::string& name = "a.safetensors") {
    for (auto& [key, tensor] : tensors) tensor = tensor.contiguous();
    save_safetensors({.tensors = std::move(tensors), .metadata = {}}, scratch_ / name);
    return scratch_ / name;
  }
  // States [rows, 2] of which the first number is the row.
  static at::Tensor numbered(std::int64_t rows) {
    return at::stack({at::arange(rows, at::kFloat), at::arange(rows, at::kFloat).neg()}, 1);
  }
  // Pairs of the first numbers of inputs and targets, in order.
  static Pairs in(const std::shared_ptr<DataLoader>& loader) {
    Pairs pairs;
    if (!loader) return pairs;
    for (const Batch& batch : *loader)
      for (std::int64_t i = 0; i < batch[0].size(0); ++i)
        pairs.emplace_back(static_cast<int>(batch[0][i].flatten()[0].item<double>()),
                           static_cast<int>(batch.labels()[i].flatten()[0].item<double>()));
    return pairs;
  }
  std::string message(const std::function<void()>& call) const {
    std::string text = error_text<Error>(call);
    const std::string folder = scratch_.folder().string() + "/";
    for (std::size_t at = 0; (at = text.find(folder)) != std::string::npos;) text.erase(at, folder.size());
    return text;
  }
  std::string refusal(ArrayDataOptions options, DataOptions shared = {}) const {
    return message([&] { ArrayData(std::move(options), std::move(shared)).prepare(); });
  }

  Scratch scratch_;
};

DataOptions in_order() { return {.batch_size = 3, .shuffle = false}; }

DataOptions with_val(std::int64_t first, std::int64_t end) {
  DataOptions options = in_order();
  options.val = {{first, end}};
  return options;
}

TEST_F(ArrayPairs, AreRowsAndLaterRowsWithoutLabels) {
  ArrayData data({.file = write({{"x", numbered(6)}}), .horizon = 2}, in_order());
  EXPECT_EQ(in(data.train_dataloader()), (Pairs{{0, 2}, {1, 3}, {2, 4}, {3, 5}}));
  EXPECT_EQ(data.val_dataloader(), nullptr);
}

TEST_F(ArrayPairs, ValidateTheLastPartOfASingleSeries) {
  const auto file = write({{"x", numbered(10)}});
  ArrayData data({.file = file, .val_fraction = 0.3, .horizon = 1}, in_order());
  EXPECT_EQ(in(data.train_dataloader()), (Pairs{{0, 1}, {1, 2}, {2, 3}, {3, 4}, {4, 5}, {5, 6}}));
  EXPECT_EQ(in(data.val_dataloader()), (Pairs{{6, 7}, {7, 8}, {8, 9}}));
}

TEST_F(ArrayPairs, TrainWithoutRowsOfTheValidation) {
  const auto file = write({{"x", numbered(9)}});
  ArrayData middle({.file = file, .folds = 3, .fold = 1, .horizon = 2}, in_order());
  EXPECT_EQ(in(middle.val_dataloader()), (Pairs{{1, 3}, {2, 4}, {3, 5}}));
  EXPECT_EQ(in(middle.train_dataloader()), (Pairs{{0, 2}, {6, 8}}))
      << "4 and 5 are inputs of no training pair";
  ArrayData range({.file = file, .horizon = 1}, with_val(0, 4));
  EXPECT_EQ(in(range.val_dataloader()), (Pairs{{0, 1}, {1, 2}, {2, 3}}));
  EXPECT_EQ(in(range.train_dataloader()), (Pairs{{4, 5}, {5, 6}, {6, 7}, {7, 8}}));
}

TEST_F(ArrayPairs, NeverHaveRowsOfTwoSeries) {
  // Three series, whose rows are not all next to one another.
  const auto file = write({{"x", numbered(8)}, {"run", at::tensor({7, 7, -2, 7, -2, 5, 5, -2}, at::kInt)}});
  ArrayData data({.file = file, .horizon = 1, .series = "run"}, in_order());
  EXPECT_EQ(in(data.train_dataloader()), (Pairs{{0, 1}, {1, 3}, {2, 4}, {5, 6}, {4, 7}}));
  const LogLines log;
  ArrayData far({.file = file, .horizon = 2, .series = "run"}, in_order());
  EXPECT_EQ(in(far.train_dataloader()), (Pairs{{0, 3}, {2, 7}}));
  ASSERT_EQ(log.texts.size(), 1U);
  EXPECT_EQ(log.texts[0], (scratch_ / "a.safetensors").string() +
                              ", array 'x': 1 of 3 series have fewer than 3 rows, and so no pair");
}

TEST_F(ArrayPairs, SplitWholeSeries) {
  const auto file = write({{"x", numbered(20)}, {"run", at::arange(20).div(4, "floor")}});
  const auto series_of = [](const Pairs& pairs) {
    std::vector<int> series;
    for (const auto& [input, target] : pairs) {
      EXPECT_EQ(target, input + 1);
      EXPECT_EQ(input / 4, target / 4);
      if (series.empty() || series.back() != input / 4) series.push_back(input / 4);
    }
    return series;
  };
  ArrayData data({.file = file, .val_fraction = 0.4, .horizon = 1, .series = "run"}, in_order());
  const Pairs train = in(data.train_dataloader()), val = in(data.val_dataloader());
  EXPECT_EQ(train.size(), 9U);
  EXPECT_EQ(val.size(), 6U);
  std::vector<int> all = series_of(train);
  for (const int series : series_of(val)) all.push_back(series);
  std::ranges::sort(all);
  EXPECT_EQ(all, (std::vector{0, 1, 2, 3, 4}));
  ArrayData range({.file = file, .horizon = 1, .series = "run"}, with_val(1, 2));
  EXPECT_EQ(in(range.val_dataloader()), (Pairs{{4, 5}, {5, 6}, {6, 7}})) << "the second series";
}

TEST_F(ArrayPairs, ReadSeriesAlongTheFirstDimension) {
  const at::Tensor states = numbered(12).view({3, 4, 2, 1});
  const auto file = write({{"x", states}, {"viscosity", at::tensor({0.5, 0.25, 0.125}, at::kFloat)}});
  ArrayData data({.file = file, .more_inputs = {"viscosity"}, .horizon = 3, .layout = "series_time"},
                 in_order());
  EXPECT_EQ(in(data.train_dataloader()), (Pairs{{0, 3}, {4, 7}, {8, 11}}));
  const Batch batch = data.train_dataloader()->dataset().slice(0, 3);
  ASSERT_EQ(batch.tensors().size(), 3U);
  EXPECT_EQ(batch[0].sizes(), (std::vector<std::int64_t>{3, 2, 1}));
  EXPECT_TRUE(same(batch[1], at::tensor({0.5, 0.25, 0.125}, at::kFloat))) << "one value for each series";
  ArrayData val({.file = file, .horizon = 1, .layout = "series_time"}, with_val(2, 3));
  EXPECT_EQ(in(val.val_dataloader()), (Pairs{{8, 9}, {9, 10}, {10, 11}}));
}

TEST_F(ArrayPairs, AreScaledAlikeAndPredictedInTheUnitOfTheData) {
  const at::Tensor states = at::arange(24, at::kInt).view({6, 2, 2}) * 3;
  ArrayData data({.file = write({{"x", states}}), .normalize = {{2, 4}}, .divisor = 3, .horizon = 1},
                 in_order());
  const Batch batch = data.on_after_batch_transfer(data.train_dataloader()->dataset().slice(0, 5));
  const at::Tensor scaled = (at::arange(24, at::kFloat).view({6, 2, 2}) - 2) / 4;
  EXPECT_TRUE(same(batch[0], scaled.narrow(0, 0, 5)));
  EXPECT_TRUE(same(batch[1], scaled.narrow(0, 1, 5)));
  EXPECT_TRUE(same(data.unscale_targets(batch[1]), states.narrow(0, 1, 5).to(at::kFloat)));
}

TEST_F(ArrayPairs, BecomeFloatsWithoutAScale) {
  for (const at::ScalarType type : {at::kLong, at::kDouble, at::kHalf, at::kByte}) {
    ArrayData data({.file = write({{"x", numbered(4).abs().to(type)}}), .horizon = 1}, in_order());
    const Batch batch = data.on_after_batch_transfer(data.train_dataloader()->dataset().slice(0, 3));
    EXPECT_TRUE(same(batch[0], numbered(4).abs().narrow(0, 0, 3))) << toString(type);
    EXPECT_TRUE(same(batch[1], numbered(4).abs().narrow(0, 1, 3))) << toString(type);
  }
}

// The statistics of training rows 0 … 5 are means 2.5 and 1e9 and deviations sqrt(35 / 12) and 1: a channel
// that is constant is only shifted.
TEST_F(ArrayPairs, AreScaledByChannelsOfTheTrainingRows) {
  const at::Tensor first = at::arange(8, at::kDouble), second = at::full({8}, 1e9, at::kDouble);
  const at::Tensor states = at::stack({first, second}, 1).unsqueeze(2).expand({8, 2, 3}).contiguous();
  ArrayData data(
      {.file = write({{"x", states}}), .val_fraction = 0.25, .normalize_by = "channels", .horizon = 1},
      in_order());
  const Batch batch = data.on_after_batch_transfer(data.train_dataloader()->dataset().slice(0, 5));
  const double deviation = std::sqrt(35. / 12);
  const at::Tensor expected = ((first - 2.5) / deviation).to(at::kFloat).unsqueeze(1).expand({8, 3});
  EXPECT_TRUE(close(batch[0].select(1, 0), expected.narrow(0, 0, 5), 1e-7));
  EXPECT_TRUE(close(batch[1].select(1, 0), expected.narrow(0, 1, 5), 1e-7));
  EXPECT_TRUE(same(batch[1].select(1, 1), at::zeros({5, 3})));
  EXPECT_TRUE(close(data.unscale_targets(batch[1]), states.narrow(0, 1, 5).to(at::kFloat), 1e-6));
  const auto buffers = data.input_transform()->named_buffers();
  EXPECT_TRUE(close(buffers["mean"], at::tensor({2.5, 1e9}, at::kDouble), 1e-15));
  EXPECT_TRUE(close(buffers["std"], at::tensor({deviation, 1.}, at::kDouble), 1e-15));
}

TEST_F(ArrayPairs, AreScaledByOneMeanOfAllNumbers) {
  ArrayData data({.file = write({{"x", at::arange(6, at::kFloat).view({3, 2})}, {"y", at::arange(3)}}),
                  .normalize_by = "all"},
                 in_order());
  const Batch batch = data.on_after_batch_transfer(data.train_dataloader()->dataset().slice(0, 3));
  EXPECT_TRUE(close(batch[0], (at::arange(6, at::kFloat).view({3, 2}) - 2.5) / std::sqrt(35. / 12), 1e-6));
  EXPECT_TRUE(same(batch[1], at::arange(3))) << "labels are not scaled";
}

// In many parts of the rows, compared with the formula for all rows at once.
TEST_F(ArrayPairs, HaveStatisticsOfRowsInManyParts) {
  at::manual_seed(0);
  const at::Tensor states = at::randn({300, 3, 128, 128}) * 5 + 1000;
  const auto file = write({{"x", states}, {"y", at::zeros({300})}});
  ArrayData data({.file = file, .normalize_by = "channels"}, in_order());
  data.prepare();
  const auto buffers = data.input_transform()->named_buffers();
  const at::Tensor numbers = states.to(at::kDouble).transpose(0, 1).reshape({3, -1});
  EXPECT_TRUE(close(buffers["mean"], numbers.mean(1), 1e-9));
  EXPECT_TRUE(close(buffers["std"], numbers.std(1, /*unbiased=*/false), 1e-9));
}

TEST_F(ArrayPairs, UseSavedStatistics) {
  const auto file = write({{"x", numbered(6)}});
  ArrayData first({.file = file, .normalize_by = "channels", .horizon = 1}, in_order());
  first.prepare();
  ArrayData second(
      {.file = write({{"x", numbered(9)}}, "b.safetensors"), .normalize_by = "channels", .horizon = 1},
      in_order());
  const std::string description = first.input_transform()->description();
  EXPECT_EQ(description, R"({"kind":"channels","channels":2})");
  second.restore_input_transform(description);
  second.prepare();
  EXPECT_TRUE(same(second.input_transform()->named_buffers()["mean"], at::zeros({2}, at::kDouble)))
      << "they are loaded with the weights, not computed";
  EXPECT_EQ(message([&] { second.restore_input_transform("{}"); }),
            "input_transform: the weights belong to inputs of another kind; expected: weights of a run whose "
            "data have normalize_by");
  ArrayData other({.file = write({{"x", at::zeros({4, 3, 2})}}, "c.safetensors"),
                   .normalize_by = "channels",
                   .horizon = 1});
  other.restore_input_transform(description);
  EXPECT_EQ(
      message([&] { other.prepare(); }),
      "c.safetensors, array 'x': the samples have 3 channels; expected: 2 channels, as the data that the "
      "weights were trained on");
}

TEST_F(ArrayPairs, PredictEveryRowOfAnotherFile) {
  ArrayData data(
      {.file = write({{"x", numbered(12).view({3, 4, 2})}}), .horizon = 1, .layout = "series_time"},
      in_order());
  data.predict_from(write({{"x", numbered(8).view({2, 4, 2})}}, "new.safetensors"));
  const Batch batch = data.predict_dataloader()->dataset().slice(0, 8);
  ASSERT_EQ(batch.tensors().size(), 1U);
  EXPECT_TRUE(same(data.on_after_batch_transfer(batch)[0], numbered(8)));
}

// --- Rollouts ---

TEST_F(ArrayPairs, AreRolledOutFromEvenlySpacedStartsInGroups) {
  DataOptions shared = with_val(4, 14);
  shared.batch_size = 2;
  ArrayData data({.file = write({{"x", numbered(14)}}), .horizon = 2, .rollout_steps = 3}, shared);
  const Rollouts rollouts = data.rollouts();
  EXPECT_EQ(rollouts.num_steps, 3);
  EXPECT_EQ(rollouts.loader->num_batches(), 9) << "three groups of two starts, three steps each";
  // The targets are rows 4 … 13: rollouts from 2 … 7.
  EXPECT_EQ(in(rollouts.loader), (Pairs{{2, 4},
                                        {3, 5},
                                        {4, 6},
                                        {5, 7},
                                        {6, 8},
                                        {7, 9},
                                        {4, 6},
                                        {5, 7},
                                        {6, 8},
                                        {7, 9},
                                        {8, 10},
                                        {9, 11},
                                        {6, 8},
                                        {7, 9},
                                        {8, 10},
                                        {9, 11},
                                        {10, 12},
                                        {11, 13}}));
}

TEST_F(ArrayPairs, AreRolledOutFromAtMost64Starts) {
  ArrayData data({.file = write({{"x", numbered(1000)}}), .horizon = 1, .rollout_steps = 4},
                 {.batch_size = 24, .val = {{500, 1000}}});
  const Pairs pairs = in(data.rollouts().loader);
  ASSERT_EQ(pairs.size(), 63U * 4) << "three groups of 21 starts: equal groups of at most a batch";
  EXPECT_EQ(pairs[0], std::pair(499, 500));
  EXPECT_EQ(pairs[1].first, 499 + 497 / 63);
  EXPECT_EQ(pairs[21], std::pair(500, 501));
  EXPECT_EQ(pairs.back(), std::pair(499 + 62 * 497 / 63 + 3, 499 + 62 * 497 / 63 + 4));
}

TEST_F(ArrayPairs, AreRolledOutWithinASeries) {
  const auto file = write({{"x", numbered(9)}, {"run", at::tensor({0, 0, 1, 1, 1, 1, 2, 2, 2}, at::kLong)}});
  const LogLines log;
  ArrayData data({.file = file, .horizon = 1, .series = "run", .rollout_steps = 3}, with_val(1, 3));
  EXPECT_EQ(in(data.rollouts().loader), (Pairs{{2, 3}, {3, 4}, {4, 5}}));
  ASSERT_EQ(log.texts.size(), 1U);
  EXPECT_EQ(
      log.texts[0],
      "data.rollout_steps: 1 of 2 series of the validation have fewer than 3 steps, and are not rolled out");
  EXPECT_EQ(
      refusal({.file = file, .horizon = 1, .series = "run", .rollout_steps = 4}, with_val(1, 3)),
      "data.rollout_steps: 4, and the longest series of the validation has 3 steps; expected: at most 3, or "
      "longer series");
}

// --- Arrays in their files ---

// As numpy.save writes it, of float32.
std::filesystem::path write_npy(const std::filesystem::path& path, const std::string& shape,
                                const at::Tensor& first, std::int64_t file_values) {
  std::string dict = "{'descr': '<f4', 'fortran_order': False, 'shape': (" + shape + "), }";
  dict.append(118 - dict.size() - 1, ' ') += '\n';
  std::ofstream(path, std::ios::binary)
      << std::string("\x93NUMPY\x01\x00\x76\x00", 10) + dict +
             std::string(static_cast<const char*>(first.const_data_ptr()), first.nbytes());
  std::filesystem::resize_file(path, static_cast<std::uintmax_t>(128 + 4 * file_values));
  return path;
}

// The file has holes behind the first states: 5 GiB, which ArrayData does not read into memory.
TEST_F(ArrayPairs, AreTheSameFromAnArrayThatStaysInItsFile) {
  at::manual_seed(0);
  constexpr std::int64_t kStates = 6, kValues = std::int64_t{1} << 18, kAll = 5120;
  const at::Tensor first = at::randn({kStates, 4, kValues / 4});
  const std::string size = std::to_string(kValues / 4);
  const auto in_memory = write_npy(scratch_ / "few.npy", "6, 4, " + size, first, first.numel());
  const auto in_file = write_npy(scratch_ / "all.npy", "5120, 4, " + size, first, kAll * kValues);
  const auto by_series = write_npy(scratch_ / "series.npy", "1280, 4, 4, " + size, first, kAll * kValues);
  const auto batch_of = [&](ArrayDataOptions options, std::int64_t count, std::vector<std::int64_t> rows) {
    options.normalize = {{0.5, 2}};
    DataOptions shared = in_order();
    shared.train = {{0, count}};
    ArrayData data(std::move(options), shared);
    Batch batch;
    data.train_dataloader()->dataset().gather(at::tensor(rows, at::kLong), batch);
    return data.on_after_batch_transfer(batch);
  };
  const Batch expected = batch_of({.file = in_memory, .horizon = 2}, 6, {3, 0, 1});
  const Batch found = batch_of({.file = in_file, .horizon = 2}, 6, {3, 0, 1});
  for (int i : {0, 1})
    EXPECT_TRUE(
        same(found.tensors()[static_cast<std::size_t>(i)], expected.tensors()[static_cast<std::size_t>(i)]));
  // A series has four states; its pairs are 0 → 2 and 1 → 3.
  const Batch series = batch_of({.file = by_series, .horizon = 2, .layout = "series_time"}, 1, {1, 0});
  EXPECT_TRUE(same(series[0], (first.index_select(0, at::tensor({1, 0})) - 0.5) / 2));
  EXPECT_TRUE(same(series[1], (first.index_select(0, at::tensor({3, 2})) - 0.5) / 2));
}

// A source that reads whole rows only, such as one of compressed rows.
TEST_F(ArrayPairs, ReadTimesOfSeriesFromWholeRows) {
  class WholeRows : public RowSource {
   public:
    void read(const std::int64_t* numbers, std::int64_t count, char* out) const override {
      for (std::int64_t i = 0; i < count; ++i, out += 16)
        for (int j = 0; j < 16; ++j) out[j] = static_cast<char>(16 * numbers[i] + j);
    }
    std::string place() const override { return "rows"; }
  };
  const SourceArray array{.values = at::empty({3, 4, 4}, at::kByte), .rows = std::make_shared<WholeRows>()};
  const SourceArray rows = rows_of_series(array, {.num_series = 3, .num_times = 4});
  EXPECT_TRUE(same(rows.all_samples(), at::arange(48, at::kByte).view({12, 4})));
}

// --- Noise ---

TEST_F(ArrayPairs, AddNoiseToTheInputsInTrainingOnly) {
  const at::Tensor states = at::zeros({600, 20, 20});
  ArrayData data({.file = write({{"x", states}}), .horizon = 1, .input_noise = 0.5}, {.batch_size = 599});
  Batch raw;
  DataLoader::Cursor cursor(*data.train_dataloader());
  cursor.seek(0);
  ASSERT_TRUE(cursor.next(raw));
  const Batch batch = data.on_after_batch_transfer(raw, Stage::train);
  const at::Tensor noise = batch[0].to(at::kDouble) / 0.5;
  // 239,600 numbers: the mean is within 5 / sqrt(n), the variance within 5 * sqrt(2 / n), the fourth moment,
  // 3, within 5 * sqrt(96 / n).
  const double n = static_cast<double>(noise.numel());
  EXPECT_NEAR(noise.mean().item<double>(), 0, 5 / std::sqrt(n));
  EXPECT_NEAR(noise.square().mean().item<double>(), 1, 5 * std::sqrt(2 / n));
  EXPECT_NEAR(noise.pow(4).mean().item<double>(), 3, 5 * std::sqrt(96 / n));
  // Neither the numbers of a sample nor those of two samples are correlated.
  const at::Tensor flat = noise.flatten(1);
  EXPECT_NEAR((flat.narrow(1, 0, 399) * flat.narrow(1, 1, 399)).mean().item<double>(), 0, 5 / std::sqrt(n));
  EXPECT_NEAR((flat.narrow(0, 0, 598) * flat.narrow(0, 1, 598)).mean().item<double>(), 0, 5 / std::sqrt(n));
  EXPECT_TRUE(same(batch[1], at::zeros({599, 20, 20}))) << "targets have none";
  for (const Stage stage : {Stage::val, Stage::predict})
    EXPECT_TRUE(same(data.on_after_batch_transfer(raw, stage)[0], at::zeros({599, 20, 20})));
}

TEST_F(ArrayPairs, HaveNoiseThatDependsOnSeedEpochAndSampleOnly) {
  const auto noise_of = [&](std::int64_t workers, std::int64_t batch_size, std::int64_t epoch) {
    ArrayData data({.file = write({{"x", at::zeros({9, 3})}}), .horizon = 1, .input_noise = 1},
                   {.batch_size = batch_size, .shuffle = false, .num_workers = workers});
    const auto loader = data.train_dataloader();
    DataLoader::Cursor cursor(*loader);
    cursor.seek(epoch);
    std::vector<at::Tensor> all;
    for (Batch batch; cursor.next(batch);)
      all.push_back(data.on_after_batch_transfer(batch, Stage::train)[0].clone());
    return at::cat(all);
  };
  const at::Tensor expected = noise_of(0, 8, 1);
  EXPECT_TRUE(same(noise_of(3, 3, 1), expected));
  EXPECT_FALSE(same(noise_of(0, 8, 2), expected));
}

// --- Errors ---

TEST_F(ArrayPairs, NameOptionsThatContradictEachOther) {
  const auto file = write({{"x", numbered(6)}, {"run", at::arange(6).to(at::kFloat)}});
  EXPECT_EQ(
      refusal({.file = file, .rollout_steps = 2}),
      "data.rollout_steps: it is set, and data.horizon is not; expected: data.horizon, for targets that are "
      "later rows");
  EXPECT_EQ(refusal({.file = file, .val_fraction = 0.5, .stratify = true, .horizon = 1}),
            "data.stratify: it is set, and data.horizon, too; expected: one of them: the targets are rows of "
            "data.inputs");
  EXPECT_EQ(
      refusal({.file = file, .horizon = 1, .shuffle_chunks = 1}),
      "data.shuffle_chunks: it is set, and data.horizon, too; expected: one of them: the targets are rows of "
      "data.inputs");
  EXPECT_EQ(refusal({.file = file, .horizon = 1, .layout = "series_time", .series = "run"}),
            "data.series: it is set, and data.layout says that the array has a dimension of trajectories; "
            "expected: one of them");
  EXPECT_EQ(
      refusal({.file = "a.npy", .horizon = 1, .series = "run"}),
      "data.series: it is set, and the file has one array; expected: a .npz file with the trajectories' "
      "numbers");
  EXPECT_EQ(refusal({.file = file, .folds = 3, .fold = 3, .horizon = 1}),
            "data.fold: 3; expected: a number below data.folds, 3");
  EXPECT_EQ(
      refusal({.file = file, .horizon = 1, .rollout_steps = 2}),
      "data.rollout_steps: it is set, and there are no validation samples; expected: data.val_fraction, "
      "data.folds or data.val");
  EXPECT_EQ(refusal({.file = file, .divisor = 2, .normalize_by = "all"}),
            "data.normalize_by: it is set, and normalize, divisor or keep_type, too; expected: one of them");
}

TEST_F(ArrayPairs, NameArraysThatDoNotFit) {
  const auto file = write({{"x", numbered(6)},
                           {"run", at::arange(6).to(at::kFloat)},
                           {"short", at::arange(5)},
                           {"line", at::arange(6)},
                           {"nan", at::full({6, 2}, std::nan(""))},
                           {"more", at::zeros({2, 3})}});
  EXPECT_EQ(refusal({.file = file, .horizon = 1, .series = "run"}),
            "a.safetensors, array 'run': it is Float [6]; expected: an integer for "
            "each row, [6]");
  EXPECT_EQ(refusal({.file = file, .horizon = 1, .series = "short"}),
            "a.safetensors, array 'short': it is Long [5]; expected: an integer "
            "for each row, [6]");
  EXPECT_EQ(refusal({.file = file, .horizon = 1, .series = "rum"}),
            "data.series: a.safetensors has no array 'rum'; expected: one of line, more, nan, run, short, x; "
            "did you mean 'run'?");
  EXPECT_EQ(refusal({.file = file, .inputs = "line", .horizon = 1}),
            "a.safetensors, array 'line': it is Long [6]; expected: states "
            "in time, "
            "[time, …]");
  EXPECT_EQ(refusal({.file = file, .horizon = 1, .layout = "series_time"}),
            "a.safetensors, array 'x': it is Float [6, 2]; expected: states of "
            "series, [series, time, …]");
  EXPECT_EQ(refusal({.file = file, .horizon = 6}),
            "a.safetensors, array 'x': no series has 7 rows; expected: at least one pair of rows that are "
            "data.horizon apart; set a smaller data.horizon");
  EXPECT_EQ(
      refusal({.file = file, .horizon = 3}, with_val(0, 3)),
      "data.horizon: no pair is left for training; expected: at least one; validate other rows, or set a "
      "smaller data.horizon");
  EXPECT_EQ(refusal({.file = file, .inputs = "nan", .normalize_by = "channels", .horizon = 1}),
            "a.safetensors, array 'nan': channel 0 of the training samples has numbers that are not finite; "
            "expected: finite numbers for data.normalize_by; if they are missing values, set "
            "data.fill_missing = 0");
  const auto series = write({{"x", at::zeros({4, 3, 2})}, {"nu", at::zeros({3})}}, "b.safetensors");
  EXPECT_EQ(refusal({.file = series, .more_inputs = {"nu"}, .horizon = 1, .layout = "series_time"}),
            "b.safetensors, array 'nu': it is Float [3]; expected: as many series "
            "as in the other inputs, [4, …]");
}

}  // namespace
}  // namespace kindling
