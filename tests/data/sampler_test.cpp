#include "kindling/data/sampler.h"

#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "kindling/base/error.h"
#include "kindling/data/data_loader.h"
#include "kindling/data/dataset.h"
#include "support/scratch.h"
#include "support/tensor_matchers.h"

namespace kindling {
namespace {

TEST(WeightedSamplerTest, DrawsInProportionToTheWeights) {
  const WeightedSampler sampler(at::tensor({1.0, 0.0, 3.0, 6.0}), /*seed=*/0, /*num_samples=*/100'000);
  const at::Tensor counts = at::bincount(sampler.order(0), {}, 4);
  EXPECT_NEAR(counts[0].item<double>(), 10'000, 400);
  EXPECT_EQ(counts[1].item<std::int64_t>(), 0);
  EXPECT_NEAR(counts[2].item<double>(), 30'000, 600);
  EXPECT_NEAR(counts[3].item<double>(), 60'000, 600);
}

TEST(WeightedSamplerTest, OrderIsAFunctionOfSeedAndEpoch) {
  const at::Tensor weights = at::ones({50});
  const WeightedSampler a(weights, 1), again(weights, 1), b(weights, 2);
  EXPECT_TRUE(same(a.order(3), again.order(3)));
  EXPECT_FALSE(same(a.order(3), a.order(4)));
  EXPECT_FALSE(same(a.order(3), b.order(3)));
  EXPECT_EQ(a.size(), 50);
}

TEST(WeightedSamplerTest, RefusesWeightsThatCannotBeUsed) {
  const auto message = [](const at::Tensor& weights) {
    return error_text<DataError>([&] { WeightedSampler(weights, 0); });
  };
  const std::string expected =
      "; expected: weights [samples] on the CPU, finite, at least 0, one of them above 0";
  EXPECT_EQ(message({}), "WeightedSampler: no weights" + expected);
  EXPECT_EQ(message(at::ones({2, 2})), "WeightedSampler: weights of the shape [2, 2] on cpu" + expected);
  EXPECT_EQ(message(at::tensor({1.0, -1.0})),
            "WeightedSampler: a weight that is negative or not finite" + expected);
  EXPECT_EQ(message(at::zeros({3})), "WeightedSampler: weights that are all 0" + expected);
}

// scikit-learn: compute_class_weight("balanced", classes=[0, 1, 3], y=[0, 0, 0, 1, 1, 3]).
TEST(BalancedWeights, EqualScikitLearns) {
  const at::Tensor labels = at::tensor({0, 0, 0, 1, 1, 3}, at::kByte);
  EXPECT_TRUE(at::allclose(balanced_class_weights(labels, 5),
                           at::tensor({6 / 9.0, 1.0, 0.0, 2.0, 0.0}, at::kDouble)));
  EXPECT_TRUE(at::allclose(balanced_sample_weights(labels),
                           at::tensor({6 / 9.0, 6 / 9.0, 6 / 9.0, 1.0, 1.0, 2.0}, at::kDouble)));
}

TEST(BalancedWeights, RefuseLabelsThatAreNotClasses) {
  EXPECT_THROW(balanced_class_weights(at::tensor({0.5})), DataError);
  EXPECT_THROW(balanced_class_weights(at::tensor({-1, 1})), DataError);
  EXPECT_THROW(balanced_class_weights(at::tensor({0, 4}), 4), DataError);
}

TEST(LoaderWithASampler, UsesItsOrderAndSize) {
  struct Backwards : Sampler {
    std::int64_t size() const override { return 5; }
    at::Tensor order(std::int64_t epoch) const override {
      return at::tensor(std::vector<std::int64_t>{9, 9, 4, 2, epoch}, at::kLong);
    }
  };
  const auto dataset = std::make_shared<TensorDataset>(std::vector<at::Tensor>{at::arange(10)});
  DataLoader loader(dataset, {.batch_size = 2, .sampler = std::make_shared<Backwards>()});
  EXPECT_EQ(loader.num_batches(), 3);
  EXPECT_EQ(loader.num_samples(), 5);
  DataLoader::Cursor cursor(loader);
  Batch batch;
  cursor.seek(3);
  std::vector<at::Tensor> seen;
  while (cursor.next(batch)) {
    EXPECT_TRUE(same(cursor.indices(), batch[0]));
    seen.push_back(batch[0].clone());
  }
  EXPECT_TRUE(same(at::cat(seen), at::tensor({9, 9, 4, 2, 3}, at::kLong)));
}

TEST(LoaderWithASampler, SplitsItsOrderAmongRanks) {
  const auto sampler = std::make_shared<WeightedSampler>(at::ones({20}), 1);
  const auto dataset = std::make_shared<TensorDataset>(std::vector<at::Tensor>{at::arange(20)});
  DataLoader loader(dataset, {.batch_size = 5, .sampler = sampler});
  for (std::int64_t rank = 0; rank < 2; ++rank) {
    DataLoader::Cursor cursor(loader);
    cursor.shard(rank, 2);
    cursor.seek(0);
    Batch batch;
    ASSERT_TRUE(cursor.next(batch));
    EXPECT_TRUE(same(batch[0], sampler->order(0).slice(0, rank, 10, 2)));
  }
}

// As for predictions: the samples of the sampler, and no others.
TEST(LoaderWithASampler, KeepOrderSortsItsSamples) {
  struct Subset : Sampler {
    std::int64_t size() const override { return 3; }
    at::Tensor order(std::int64_t) const override { return at::tensor({7, 2, 5}, at::kLong); }
  };
  DataLoader loader(std::make_shared<TensorDataset>(std::vector<at::Tensor>{at::arange(10)}),
                    {.batch_size = 4, .sampler = std::make_shared<Subset>()});
  DataLoader::Cursor cursor(loader);
  cursor.seek(0);
  cursor.keep_order();
  cursor.seek(0);
  Batch batch;
  ASSERT_TRUE(cursor.next(batch));
  EXPECT_TRUE(same(batch[0], at::tensor({2, 5, 7}, at::kLong)));
  EXPECT_TRUE(same(cursor.indices(), batch[0]));
  EXPECT_FALSE(cursor.next(batch));
}

TEST(LoaderWithASampler, RefusesAWrongOrder) {
  struct Wrong : Sampler {
    std::int64_t size() const override { return 2; }
    at::Tensor order(std::int64_t) const override { return at::tensor({0, 10}, at::kLong); }
  };
  DataLoader loader(std::make_shared<TensorDataset>(std::vector<at::Tensor>{at::arange(10)}),
                    {.batch_size = 2, .sampler = std::make_shared<Wrong>()});
  EXPECT_EQ(error_text<DataError>([&] { loader.start_epoch(0); }),
            "Sampler::order: the index 10; expected: int64 [2] on the CPU, from 0 to 9");
}

TEST(ShuffledOrder, OfASeedIsThatOfTheNextSeedAnEpochLaterUnlessMixed) {
  EXPECT_TRUE(same(shuffled_order(100, 7, 3), shuffled_order(100, 8, 2)));  // as DistributedSampler
  EXPECT_TRUE(same(mixed_order(100, 7, 3), mixed_order(100, 7, 3)));
  EXPECT_TRUE(same(std::get<0>(mixed_order(100, 7, 3).sort()), at::arange(100)));
  std::set<std::string> orders;
  for (std::int64_t seed = 0; seed < 20; ++seed)
    for (std::int64_t epoch = 0; epoch < 20; ++epoch) {
      const at::Tensor order = mixed_order(20, seed, epoch);
      orders.insert(std::string(static_cast<const char*>(order.const_data_ptr()), order.nbytes()));
    }
  EXPECT_EQ(orders.size(), 400u);
}

TEST(ShuffledOrder, OfALoaderIsThatOfItsOrderSeed) {
  const auto dataset = std::make_shared<TensorDataset>(std::vector<at::Tensor>{at::arange(30)});
  for (const std::string order_seed : {"sum", "mixed"})
    for (const std::int64_t ranks : {1, 2}) {
      DataLoader loader(dataset, {.batch_size = 30, .shuffle = true, .seed = 5, .order_seed = order_seed});
      DataLoader::Cursor cursor(loader);
      cursor.shard(0, ranks);
      cursor.seek(2);
      Batch batch;
      ASSERT_TRUE(cursor.next(batch));
      const at::Tensor order = order_seed == "sum" ? shuffled_order(30, 5, 2) : mixed_order(30, 5, 2);
      EXPECT_TRUE(same(batch[0], order.slice(0, 0, 30, ranks))) << order_seed;
    }
  EXPECT_EQ(error_text<DataError>([&] { DataLoader(dataset, {.order_seed = "other"}); }),
            "DataLoader: order_seed is \"other\"; expected: sum or mixed");
}

}  // namespace
}  // namespace kindling
