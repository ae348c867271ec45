#include "kindling/data/data_loader.h"

#include <ATen/Context.h>
#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include "kindling/base/error.h"
#include "kindling/device/device_memory.h"
#include "kindling/tensors/move.h"
#include "support/device_under_test.h"
#include "support/scratch.h"
#include "support/tensor_matchers.h"

namespace kindling {
namespace {

std::shared_ptr<const Dataset> numbered_samples(std::int64_t n) {
  return std::make_shared<TensorDataset>(std::vector<at::Tensor>{at::arange(n), at::arange(n) * 10});
}

std::int64_t resident_bytes() { return device_memory(cpu()).allocated_bytes; }

using Order = std::vector<std::vector<std::int64_t>>;

Order epoch_of(DataLoader& loader, std::int64_t epoch) {
  Order order;
  Batch batch;
  loader.start_epoch(epoch);
  while (loader.next(batch)) {
    const at::Tensor on_host = batch[0].cpu();
    order.emplace_back(on_host.const_data_ptr<std::int64_t>(),
                       on_host.const_data_ptr<std::int64_t>() + on_host.numel());
    EXPECT_TRUE(same(batch[1], on_host * 10));
  }
  return order;
}

class Loader : public OnDevice {};
KINDLING_RUN_ON_DEVICES(Loader);

// Python: torch.randperm(7, generator=torch.Generator().manual_seed(3)), then 4 and 5.
TEST_P(Loader, OrderIsPythonsPermutationOfSeedPlusEpoch) {
  DataLoader loader(numbered_samples(7), {.batch_size = 3, .shuffle = true, .seed = 3});
  loader.stage_for(device_);
  EXPECT_EQ(epoch_of(loader, 0), (Order{{5, 3, 4}, {6, 0, 2}, {1}}));
  EXPECT_EQ(epoch_of(loader, 2), (Order{{1, 0, 4}, {2, 6, 5}, {3}}));
  EXPECT_EQ(epoch_of(loader, 1), (Order{{3, 1, 0}, {4, 2, 5}, {6}}));
}

TEST_P(Loader, OrderDoesNotTouchTheDefaultGenerator) {
  DataLoader loader(numbered_samples(7), {.batch_size = 3, .shuffle = true});
  loader.stage_for(device_);
  at::manual_seed(1);
  const at::Tensor expected = at::rand({3});
  at::manual_seed(1);
  epoch_of(loader, 0);
  EXPECT_TRUE(same(at::rand({3}), expected));
}

TEST_P(Loader, InOrderWithoutShuffling) {
  DataLoader loader(numbered_samples(5), {.batch_size = 2});
  loader.stage_for(device_);
  EXPECT_EQ(loader.num_batches(), 3);
  EXPECT_EQ(epoch_of(loader, 0), (Order{{0, 1}, {2, 3}, {4}}));
  EXPECT_EQ(epoch_of(loader, 1), (Order{{0, 1}, {2, 3}, {4}}));
}

TEST_P(Loader, DropLastSkipsTheShortBatch) {
  DataLoader loader(numbered_samples(5), {.batch_size = 2, .drop_last = true});
  loader.stage_for(device_);
  EXPECT_EQ(loader.num_batches(), 2);
  EXPECT_EQ(epoch_of(loader, 0), (Order{{0, 1}, {2, 3}}));
}

TEST_P(Loader, BatchesThatAreHeldKeepTheirValues) {
  DataLoader loader(numbered_samples(7), {.batch_size = 3, .shuffle = true, .seed = 3});
  loader.stage_for(device_);
  std::vector<Batch> held;
  for (const Batch& batch : loader) held.push_back(batch);
  ASSERT_EQ(held.size(), 3);
  EXPECT_TRUE(same(held[0][0], at::tensor({5, 3, 4}, at::kLong)));
  EXPECT_TRUE(same(held[1][0], at::tensor({6, 0, 2}, at::kLong)));
  EXPECT_TRUE(same(held[2][0], at::tensor({1}, at::kLong)));
}

TEST_P(Loader, StagedBatchesArePinned) {
  if (device_.is_cpu()) GTEST_SKIP() << "there is nothing to pin memory for";
  DataLoader loader(numbered_samples(7), {.batch_size = 3, .shuffle = true});
  loader.stage_for(device_);
  std::vector<Batch> held;  // so that one buffer begins with the short batch and grows later
  for (int epoch = 0; epoch < 2; ++epoch) {
    held.clear();
    for (const Batch& batch : loader) {
      EXPECT_TRUE(batch[0].is_pinned());
      EXPECT_TRUE(batch[1].is_pinned());
      held.push_back(batch);
    }
  }
}

TEST(DataLoader, ReusesTheBufferOfAReleasedBatch) {
  DataLoader loader(numbered_samples(7), {.batch_size = 3, .shuffle = true});
  Batch batch;
  loader.start_epoch(0);
  loader.next(batch);
  const void* memory = batch[0].const_data_ptr();
  loader.next(batch);
  EXPECT_EQ(batch[0].const_data_ptr(), memory);
}

TEST(DataLoader, DoesNotReuseTheBufferOfAHeldBatch) {
  DataLoader loader(numbered_samples(7), {.batch_size = 3, .shuffle = true});
  Batch first, second;
  loader.start_epoch(0);
  loader.next(first);
  loader.next(second);
  EXPECT_NE(second[0].const_data_ptr(), first[0].const_data_ptr());
  const at::Tensor view = first[1].narrow(0, 1, 1);
  const void* memory = first[1].const_data_ptr();
  first.clear();
  loader.next(second);
  EXPECT_NE(second[1].const_data_ptr(), memory);
}

TEST(DataLoader, BatchesInOrderAreViewsOfTheData) {
  const at::Tensor data = at::arange(5);
  DataLoader loader(std::make_shared<TensorDataset>(std::vector<at::Tensor>{data}), {.batch_size = 2});
  Batch batch;
  loader.start_epoch(0);
  loader.next(batch);
  loader.next(batch);
  EXPECT_EQ(batch[0].const_data_ptr<std::int64_t>(), data.const_data_ptr<std::int64_t>() + 2);
}

TEST(DataLoader, EachLoopIsTheNextEpoch) {
  DataLoader loader(numbered_samples(7), {.batch_size = 7, .shuffle = true, .seed = 3});
  std::vector<at::Tensor> firsts;
  for (int epoch = 0; epoch < 2; ++epoch)
    for (const Batch& batch : loader) firsts.push_back(batch[0].clone());
  EXPECT_TRUE(same(firsts.at(0), at::tensor({5, 3, 4, 6, 0, 2, 1}, at::kLong)));
  EXPECT_TRUE(same(firsts.at(1), at::tensor({3, 1, 0, 4, 2, 5, 6}, at::kLong)));
}

TEST(DataLoader, DoesNotChangeTheBatchAtTheEnd) {
  DataLoader loader(numbered_samples(2), {.batch_size = 2});
  Batch batch;
  loader.start_epoch(0);
  EXPECT_TRUE(loader.next(batch));
  EXPECT_FALSE(loader.next(batch));
  EXPECT_EQ(batch.num_samples(), 2);
}

// Where several read one loader, each has its own place.
Order rest_of(DataLoader::Cursor& cursor) {
  Order order;
  Batch batch;
  while (cursor.next(batch)) {
    const at::Tensor on_host = batch[0].cpu();
    order.emplace_back(on_host.const_data_ptr<std::int64_t>(),
                       on_host.const_data_ptr<std::int64_t>() + on_host.numel());
  }
  return order;
}

TEST_P(Loader, CursorsReadItIndependently) {
  for (const bool shuffle : {false, true}) {
    DataLoader loader(numbered_samples(7), {.batch_size = 3, .shuffle = shuffle, .seed = 3});
    const Order whole = epoch_of(loader, 1);
    DataLoader::Cursor a(loader), b(loader);
    a.stage_for(device_);
    b.stage_for(device_);
    Batch batch;
    a.seek(1);
    a.next(batch);
    b.seek(0);
    rest_of(b);
    EXPECT_EQ(rest_of(a), (Order{whole.begin() + 1, whole.end()})) << shuffle;
    a.seek(1, 2);
    EXPECT_EQ(rest_of(a), (Order{whole.back()})) << shuffle;
    a.seek(1, 3);
    EXPECT_TRUE(rest_of(a).empty());
  }
}

TEST_P(Loader, RanksShareTheSamples) {
  for (const bool shuffle : {false, true}) {
    DataLoader loader(numbered_samples(7), {.batch_size = 2, .shuffle = shuffle, .seed = 3});
    DataLoader all(numbered_samples(7), {.batch_size = 7, .shuffle = shuffle, .seed = 3});
    const auto order = epoch_of(all, 1).at(0);
    for (std::int64_t rank = 0; rank < 2; ++rank) {
      DataLoader::Cursor cursor(loader);
      cursor.stage_for(device_);
      cursor.shard(rank, 2);
      EXPECT_EQ(cursor.num_batches(), 2);
      Order own{{order[static_cast<std::size_t>(rank)], order[static_cast<std::size_t>(rank) + 2]}, {}};
      for (auto i = static_cast<std::size_t>(rank) + 4; i < 7; i += 2) own[1].push_back(order[i]);
      for (int again = 0; again < 2; ++again) {
        cursor.seek(1);
        EXPECT_EQ(rest_of(cursor), own) << rank;
      }
    }
    DataLoader whole_batches(numbered_samples(7),
                             {.batch_size = 2, .shuffle = shuffle, .drop_last = true, .seed = 3});
    DataLoader::Cursor cursor(whole_batches);
    cursor.shard(1, 2);
    cursor.seek(1);
    EXPECT_EQ(rest_of(cursor), (Order{{order[1], order[3]}}));
    EXPECT_THROW(cursor.shard(2, 2), DataError);
  }
}

// So that it makes as many steps as the others do.
TEST_P(Loader, ARankWithoutSamplesRepeatsABatchThatDoesNotCount) {
  DataLoader loader(numbered_samples(9), {.batch_size = 2});
  std::multiset<std::int64_t> counted;
  for (std::int64_t rank = 0; rank < 4; ++rank) {
    DataLoader::Cursor cursor(loader);
    cursor.stage_for(device_);
    cursor.shard(rank, 4);
    EXPECT_EQ(cursor.num_batches(), 2);
    cursor.seek(0);
    Batch batch;
    for (std::int64_t i = 0; cursor.next(batch); ++i) {
      EXPECT_EQ(batch.is_valid(), i == 0 || rank == 0) << rank;
      EXPECT_EQ(batch.num_valid(), batch.is_valid() ? batch.num_samples() : 0);
      EXPECT_EQ(batch.num_samples(), i == 1 && rank == 0 ? 1 : 2);
      const at::Tensor indices = cursor.indices();
      for (std::int64_t k = 0; k < batch.num_valid(); ++k) counted.insert(indices[k].item<std::int64_t>());
    }
  }
  EXPECT_EQ(counted, (std::multiset<std::int64_t>{0, 1, 2, 3, 4, 5, 6, 7, 8}));
  DataLoader small(numbered_samples(2), {.batch_size = 2});
  DataLoader::Cursor cursor(small);
  cursor.shard(3, 4);  // has none at all
  cursor.seek(0);
  Batch batch;
  ASSERT_TRUE(cursor.next(batch));
  EXPECT_EQ(batch.num_valid(), 0);
  EXPECT_EQ(batch.num_samples(), 1);
  EXPECT_FALSE(cursor.next(batch));
}

// Samples of 1 MiB that are made when they are asked for, each time with another value.
class Augmented : public Dataset {
 public:
  explicit Augmented(std::int64_t n) : n_(n) {}
  std::int64_t size() const override { return n_; }
  void gather(const at::Tensor& indices, Batch& batch) const override {
    ++num_gathers;
    batch = Batch{at::full({indices.size(0), 1 << 18}, static_cast<float>(num_gathers)), indices};
  }
  mutable std::int64_t num_gathers = 0;

 private:
  std::int64_t n_;
};

TEST(DataLoader, GathersACustomSetInEveryEpochAndCachesNothing) {
  const auto set = std::make_shared<Augmented>(2000);
  DataLoader loader(set, {.batch_size = 4});
  std::vector<float> firsts;
  [[maybe_unused]] const std::int64_t before = resident_bytes();
  for (int epoch = 0; epoch < 2; ++epoch)
    for (const Batch& batch : loader)
      if (batch[1][0].item<std::int64_t>() == 0) firsts.push_back(batch[0][0][0].item<float>());
  EXPECT_EQ(set->num_gathers, 2 * 500);
#ifndef __SANITIZE_ADDRESS__  // which keeps what has been freed
  EXPECT_LT(resident_bytes() - before, 100 << 20) << "of 2,000 samples of 1 MiB";
#endif
  EXPECT_NE(firsts.at(0), firsts.at(1)) << "an augmentation is drawn anew";
}

TEST(DataLoader, RejectsASetThatReturnsTooFewSamples) {
  class Short : public Augmented {
   public:
    using Augmented::Augmented;
    void gather(const at::Tensor& indices, Batch& batch) const override {
      batch = Batch{at::zeros({indices.size(0), 2}), at::zeros({indices.size(0) - 1})};
    }
  };
  DataLoader loader(std::make_shared<Short>(8), {.batch_size = 4});
  Batch batch;
  EXPECT_EQ(
      error_text<DataError>([&] { loader.next(batch); }),
      "Dataset::gather: a tensor of the shape [3] for 4 indices; expected: as many samples as indices, along "
      "dimension 0");
}

TEST(DataLoader, RejectsOptionsWithoutABatch) {
  EXPECT_EQ(error_text<DataError>([] { DataLoader(numbered_samples(3), {.batch_size = 0}); }),
            "DataLoader: batch_size is 0; expected: at least 1");
  EXPECT_EQ(error_text<DataError>([] { DataLoader(nullptr, {}); }),
            "DataLoader: the data set is empty; expected: at least one sample");
  EXPECT_EQ(error_text<DataError>([] { DataLoader(numbered_samples(0), {}); }),
            "DataLoader: the data set is empty; expected: at least one sample");
  EXPECT_EQ(
      error_text<DataError>([] { DataLoader(numbered_samples(3), {.batch_size = 4, .drop_last = true}); }),
      "DataLoader: drop_last leaves no batch of 4 among 3 samples; expected: a smaller batch_size");
}

TEST(DataLoader, BeginsTheFirstEpochByItself) {
  DataLoader loader(std::make_shared<TensorDataset>(std::vector<at::Tensor>{at::arange(4)}),
                    {.batch_size = 3, .shuffle = true});
  Batch batch;
  ASSERT_TRUE(loader.next(batch));
  EXPECT_EQ(batch.num_samples(), 3);
}

}  // namespace
}  // namespace kindling
