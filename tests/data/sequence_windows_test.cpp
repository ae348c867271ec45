#include "kindling/data/sequence_windows.h"

#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include "kindling/base/error.h"
#include "kindling/data/collated_dataset.h"
#include "support/scratch.h"
#include "support/tensor_matchers.h"

namespace kindling {
namespace {

std::string windows_error(std::vector<at::Tensor> sequences, SequenceWindowsOptions options) {
  return error_text<DataError>([&] { SequenceWindows(std::move(sequences), options); });
}

// 11 steps in two rows of 5; the last one is dropped.
TEST(SequenceWindows, SplitALongSeriesIntoRows) {
  const at::Tensor rows = SequenceWindows::rows_of(at::arange(11), 2);
  EXPECT_TRUE(same(rows, at::arange(10).view({2, 5})));
  EXPECT_EQ(SequenceWindows::rows_of(at::zeros({11, 3}), 2).sizes(), (std::vector<std::int64_t>{2, 5, 3}));
  const std::string error = error_text<DataError>([] { SequenceWindows::rows_of(at::arange(3), 4); });
  EXPECT_NE(error.find("4 rows of a series"), std::string::npos) << error;
}

// Four sequences of 5 steps, two to a batch, in windows of 2 steps: rows 0 and 1 to their end, then 2 and 3.
TEST(SequenceWindows, ContinueEachRowOfTheBatchBefore) {
  const at::Tensor x = at::arange(20).view({4, 5});
  const auto loader = SequenceWindows::loader({x, x + 1}, {.batch_size = 2, .num_steps = 2});
  std::vector<at::Tensor> inputs, targets;
  for (const Batch& batch : *loader) {
    inputs.push_back(batch[0].clone());
    targets.push_back(batch.labels().clone());
  }
  ASSERT_EQ(inputs.size(), 6u);
  EXPECT_TRUE(same(at::cat({inputs[0], inputs[1], inputs[2]}, 1), x.narrow(0, 0, 2)));
  EXPECT_TRUE(same(at::cat({inputs[3], inputs[4], inputs[5]}, 1), x.narrow(0, 2, 2)));
  EXPECT_EQ(inputs[2].size(1), 1) << "the last window is shorter";
  EXPECT_TRUE(same(targets[4], inputs[4] + 1));
  EXPECT_EQ(SequenceWindows({x}, {.batch_size = 2, .num_steps = 2}).num_windows(), 3);
}

TEST(SequenceWindows, AreCopies) {
  const at::Tensor x = at::ones({1, 4});
  const auto loader = SequenceWindows::loader({x}, {.batch_size = 1, .num_steps = 4});
  for (const Batch& batch : *loader) {
    at::Tensor window = batch[0];
    window.mul_(2);
  }
  EXPECT_TRUE(same(x, at::ones({1, 4})));
}

TEST(SequenceWindows, RejectOtherOrdersAndShapes) {
  const at::Tensor x = at::arange(20).view({4, 5});
  const auto windows = std::make_shared<SequenceWindows>(std::vector{x}, SequenceWindowsOptions{2, 2});
  for (const DataLoaderOptions& options :
       {DataLoaderOptions{.batch_size = 2, .shuffle = true}, DataLoaderOptions{.batch_size = 3}}) {
    DataLoader loader(windows, options);
    const std::string error = error_text<DataError>([&] {
      for (const Batch& batch : loader) static_cast<void>(batch);
    });
    EXPECT_NE(error.find("a loader without shuffling, with the batch size 2"), std::string::npos) << error;
  }
  EXPECT_NE(windows_error({x}, {.batch_size = 3}).find("4 sequences in batches of 3"), std::string::npos);
  EXPECT_NE(windows_error({x, x.narrow(1, 0, 4)}, {.batch_size = 2}).find("[4, 4]"), std::string::npos);
  EXPECT_NE(windows_error({at::arange(5)}, {.batch_size = 1}).find("[5]"), std::string::npos);
  EXPECT_NE(windows_error({x}, {.batch_size = 2, .num_steps = 0}).find("num_steps of 0"), std::string::npos);
  EXPECT_NE(windows_error({}, {}).find("no tensors"), std::string::npos);
}

TEST(CollatedDataset, MakesBatchesWithItsFunction) {
  const auto sample = [](std::int64_t i) { return Batch{at::full({i + 1}, i)}; };
  const auto collate = [](const std::vector<Batch>& samples) {
    at::Tensor sums = at::empty({static_cast<std::int64_t>(samples.size())}, at::kLong);
    for (std::size_t i = 0; i < samples.size(); ++i) sums[static_cast<std::int64_t>(i)] = samples[i][0].sum();
    return Batch{sums};
  };
  DataLoader loader(std::make_shared<CollatedDataset>(5, sample, collate), {.batch_size = 2});
  std::vector<at::Tensor> batches;
  for (const Batch& batch : loader) batches.push_back(batch[0].clone());
  EXPECT_TRUE(same(at::cat(batches), at::tensor({0, 2, 6, 12, 20}, at::kLong)));
  EXPECT_THROW(CollatedDataset(5, sample, {}), DataError);
  EXPECT_THROW(CollatedDataset(-1, sample, collate), DataError);
}

}  // namespace
}  // namespace kindling
