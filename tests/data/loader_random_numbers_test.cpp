#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include "kindling/base/error.h"
#include "kindling/data/data_loader.h"
#include "kindling/data/data_module.h"
#include "kindling/data/sample_random.h"
#include "kindling/data/sampler.h"
#include "support/scratch.h"
#include "support/tensor_matchers.h"

namespace kindling {
namespace {

struct Labelled : DataModule {
  explicit Labelled(DataOptions options) : DataModule(std::move(options)) {}
  std::shared_ptr<DataLoader> train_dataloader() override { return train_loader_of({inputs, labels}); }
  std::int64_t num_random_numbers(Stage stage) const override { return stage == Stage::train ? 2 : 0; }
  at::Tensor inputs = at::arange(10).to(at::kFloat);
  at::Tensor labels = at::tensor({0, 0, 0, 0, 0, 0, 0, 0, 0, 1}, at::kByte);
};

TEST(LoaderRandomNumbers, DependOnSeedEpochAndSampleOnly) {
  Labelled data({.batch_size = 4, .seed = 9});
  const auto loader = data.train_dataloader();
  DataLoader::Cursor cursor(*loader);
  cursor.seek(3);
  Batch batch;
  ASSERT_TRUE(cursor.next(batch));
  const at::Tensor numbers = batch.random_numbers();
  ASSERT_EQ(numbers.sizes(), (std::vector<std::int64_t>{4, 2}));
  EXPECT_EQ(numbers.scalar_type(), at::kFloat);
  for (std::int64_t i = 0; i < 4; ++i) {
    const at::Tensor sample = cursor.indices().narrow(0, i, 1);
    EXPECT_TRUE(same(numbers.narrow(0, i, 1), SampleStreams(9, 3).numbers(sample, 2)));
    EXPECT_FALSE(same(numbers.narrow(0, i, 1), SampleStreams(9, 4).numbers(sample, 2)));
    EXPECT_FALSE(same(numbers.narrow(0, i, 1), SampleStreams(8, 3).numbers(sample, 2)));
    // Or a crop in gather and a flip on the device would always come together.
    SampleRandom of_gather(9, 3, sample.item<std::int64_t>());
    EXPECT_NE(numbers[i][0].item<float>(), of_gather.uniform_float());
  }
}

// Otherwise a rare class, of which a sample comes many times in an epoch, would hardly be augmented.
TEST(LoaderRandomNumbers, DifferEachTimeASampleComesInAnEpoch) {
  const auto samples = std::make_shared<TensorDataset>(std::vector<at::Tensor>{at::arange(5)});
  DataLoader loader(samples, {.batch_size = 4,
                              .seed = 9,
                              .num_random_numbers = 2,
                              .sampler = std::make_shared<WeightedSampler>(at::ones({5}), 9, 40)});
  const auto rows_of = [&](std::int64_t rank, std::int64_t num_ranks, std::int64_t first_batch) {
    DataLoader::Cursor cursor(loader);
    cursor.shard(rank, num_ranks);
    cursor.seek(3, first_batch);
    std::vector<at::Tensor> rows;
    for (Batch batch; cursor.next(batch);)
      rows.push_back(at::cat({batch[0].to(at::kFloat).unsqueeze(1), batch.random_numbers()}, 1));
    return at::cat(rows);
  };
  const at::Tensor all = rows_of(0, 1, 0);
  ASSERT_EQ(all.sizes(), (std::vector<std::int64_t>{40, 3}));
  EXPECT_EQ(std::get<0>(at::unique_dim(all.narrow(1, 1, 2), 0)).size(0), 40);
  for (std::int64_t sample = 0; sample < 5; ++sample) {
    const at::Tensor index = at::full({1}, sample, at::kLong),
                     first = all.select(1, 0).eq(static_cast<double>(sample)).nonzero()[0];
    EXPECT_TRUE(same(all.index_select(0, first).narrow(1, 1, 2), SampleStreams(9, 3).numbers(index, 2)));
  }
  EXPECT_TRUE(same(rows_of(0, 1, 6), all.narrow(0, 24, 16)));
  for (std::int64_t rank = 0; rank < 2; ++rank)
    EXPECT_TRUE(same(rows_of(rank, 2, 0), all.slice(0, rank, 40, 2)));
}

TEST(LoaderRandomNumbers, AreMadeForTrainingOnly) {
  Labelled data({.batch_size = 4});
  const auto loader = data.get_tensorloader({data.inputs}, /*train=*/false);
  for (const Batch& batch : *loader) EXPECT_FALSE(batch.random_numbers().defined());
}

TEST(DataSampler, BalancedDrawsClassesEquallyOften) {
  Labelled data({.batch_size = 10, .sampler = "balanced"});
  std::int64_t num_ones = 0;
  for (int epoch = 0; epoch < 200; ++epoch)
    for (const Batch& batch : *data.train_dataloader()) num_ones += batch[1].sum().item<std::int64_t>();
  EXPECT_NEAR(static_cast<double>(num_ones), 1000, 100);
}

TEST(DataSampler, OverridesShuffle) {
  Labelled in_order({.batch_size = 10, .shuffle = true, .sampler = "sequential"});
  for (const Batch& batch : *in_order.train_dataloader()) EXPECT_TRUE(same(batch[0], in_order.inputs));
  Labelled shuffled({.batch_size = 10, .shuffle = false, .sampler = "shuffled"});
  for (const Batch& batch : *shuffled.train_dataloader()) EXPECT_FALSE(same(batch[0], shuffled.inputs));
}

TEST(DataSampler, BalancedNeedsClasses) {
  Labelled data({.batch_size = 10, .sampler = "balanced"});
  EXPECT_EQ(error_text<ConfigError>([&] { data.get_tensorloader({data.inputs}, /*train=*/true); }),
            "data.sampler = \"balanced\": labels: a tensor of the shape [10] and dtype Float, or negative "
            "labels; expected: integers [samples] from 0 on, on the CPU; omit data.sampler: only classes can "
            "be balanced");
}

}  // namespace
}  // namespace kindling
