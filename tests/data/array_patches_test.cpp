// Training on parts of fields: data.patch.
#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "kindling/base/error.h"
#include "kindling/data/array_data.h"
#include "kindling/tensors/state_dict.h"
#include "support/scratch.h"
#include "support/tensor_matchers.h"

namespace kindling {
namespace {

class ArrayPatches : public testing::Test {
 protected:
  std::filesystem::path write(std::vector<std::pair<std::string, at::Tensor>> tensors) {
    save_safetensors({.tensors = std::move(tensors), .metadata = {}}, scratch_ / "a.safetensors");
    return scratch_ / "a.safetensors";
  }
  std::string refusal(ArrayDataOptions options) {
    const std::string text = error_text<Error>([&] { ArrayData(std::move(options)).prepare(); });
    return text.substr(text.find(": ") + 2);
  }
  // The batches of an epoch, as the training gets them.
  static Batch epoch_of(DataModule& data, const std::shared_ptr<DataLoader>& loader, Stage stage,
                        std::int64_t epoch = 0) {
    DataLoader::Cursor cursor(*loader);
    cursor.seek(epoch);
    std::vector<std::vector<at::Tensor>> columns;
    for (Batch raw; cursor.next(raw);) {
      const Batch batch = data.on_after_batch_transfer(raw, stage);
      columns.resize(batch.tensors().size());
      for (std::size_t i = 0; i < columns.size(); ++i) columns[i].push_back(batch[i].clone());
    }
    std::vector<at::Tensor> all;
    for (const auto& column : columns) all.push_back(at::cat(column));
    return Batch(std::move(all));
  }

  const Scratch scratch_;
};

// Each cell has its own number, so that a patch shows where it is from.
TEST_F(ArrayPatches, AreConnectedAndTheSameInInputsAndLabels) {
  const at::Tensor x = at::arange(200 * 2 * 5 * 7, at::kFloat).view({200, 2, 5, 7}), z = x.select(1, 0) + 0.5;
  ArrayData data({.file = write({{"x", x}, {"y", -x}, {"z", z}, {"rate", at::ones({200, 1})}}),
                  .more_inputs = {"z", "rate"},
                  .patch = {2, 3}},
                 {.batch_size = 64, .shuffle = false});
  const Batch batch = epoch_of(data, data.train_dataloader(), Stage::train);
  ASSERT_EQ(batch[0].sizes(), (at::IntArrayRef{200, 2, 2, 3}));
  EXPECT_TRUE(same(batch[3], -batch[0]));
  EXPECT_TRUE(same(batch[1], batch[0].select(1, 0) + 0.5));
  EXPECT_EQ(batch[2].sizes(), (at::IntArrayRef{200, 1}));
  std::set<std::pair<std::int64_t, std::int64_t>> places;
  for (std::int64_t i = 0; i < 200; ++i) {
    const auto first = static_cast<std::int64_t>(batch[0][i][0][0][0].item<float>()) - 70 * i;
    const std::int64_t row = first / 7, column = first % 7;
    ASSERT_TRUE(row <= 3 && column <= 4) << row << " " << column;
    EXPECT_TRUE(same(batch[0][i], x[i].narrow(1, row, 2).narrow(2, column, 3)));
    places.emplace(row, column);
  }
  EXPECT_EQ(places.size(), 4U * 5);  // each of 20 is missed with the probability 0.95^200 = 4e-5
}

TEST_F(ArrayPatches, AreOfTrainingOnly) {
  const at::Tensor x = at::rand({10, 6, 6});
  ArrayData data({.file = write({{"x", x}, {"y", x}}), .val_fraction = 0.5, .patch = {4, 4}},
                 {.batch_size = 5});
  EXPECT_EQ(epoch_of(data, data.train_dataloader(), Stage::train)[0].sizes(), (at::IntArrayRef{5, 4, 4}));
  EXPECT_EQ(epoch_of(data, data.val_dataloader(), Stage::val)[0].sizes(), (at::IntArrayRef{5, 6, 6}));
  EXPECT_EQ(epoch_of(data, data.predict_dataloader(), Stage::predict)[0].sizes(), (at::IntArrayRef{5, 6, 6}));
}

// Of one to three dimensions of space, with pairs in time and noise.
TEST_F(ArrayPatches, DependOnSeedEpochAndSampleOnly) {
  const at::Tensor x = at::rand({20, 8, 8, 8});
  for (const std::vector<std::int64_t>& patch :
       {std::vector<std::int64_t>{8}, {3}, {8, 1}, {2, 3}, {8, 8, 8}, {4, 2, 3}}) {
    const auto epoch = [&](std::int64_t workers, std::int64_t batch_size, std::int64_t number) {
      ArrayData data({.file = write({{"x", x}}), .horizon = 1, .input_noise = 0.1, .patch = patch},
                     {.batch_size = batch_size, .shuffle = false, .num_workers = workers});
      return epoch_of(data, data.train_dataloader(), Stage::train, number);
    };
    const Batch expected = epoch(0, 19, 2), other = epoch(3, 4, 2);
    std::vector<std::int64_t> sizes{19, 8, 8, 8};
    std::copy(patch.begin(), patch.end(), sizes.end() - static_cast<std::ptrdiff_t>(patch.size()));
    EXPECT_EQ(expected[0].sizes(), at::IntArrayRef(sizes));
    EXPECT_TRUE(same(other[0], expected[0]));
    EXPECT_TRUE(same(other[1], expected[1]));
    EXPECT_FALSE(same(epoch(0, 19, 3)[0], expected[0]));
  }
}

TEST_F(ArrayPatches, MustFitIntoTheFields) {
  const at::Tensor x = at::rand({10, 2, 6, 8}), y = at::rand({10, 6, 7});
  EXPECT_EQ(refusal({.file = write({{"x", x}, {"y", x}}), .patch = {7, 8}}),
            "the samples are [2, 6, 8]; expected: at least the sizes of a patch, [7, 8], in the last "
            "dimensions; see data.patch");
  EXPECT_EQ(refusal({.file = write({{"x", x}, {"y", x}}), .patch = {1, 2, 6, 8}}),
            "the samples are [2, 6, 8]; expected: at least the sizes of a patch, [1, 2, 6, 8], in the last "
            "dimensions; see data.patch");
  EXPECT_EQ(refusal({.file = write({{"x", x}, {"y", y}}), .patch = {2, 2}}),
            "the fields of the inputs are [6, 8], and further inputs or labels are [6, 7]; expected: fields "
            "of the same size, or [samples] or [samples, values] without places; see data.patch");
  EXPECT_EQ(refusal({.file = write({{"x", x}, {"y", x}}), .patch = {0, 2}}),
            "patch[0] is 0; expected: an integer >= 1");
}

}  // namespace
}  // namespace kindling
