#include "kindling/data/iterable_dataset.h"

#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "kindling/base/error.h"
#include "kindling/data/data_loader.h"
#include "kindling/data/sample_random.h"
#include "kindling/data/sampler.h"
#include "support/scratch.h"

namespace kindling {
namespace {

// {number, random number of the sample}, in memory that every sample reuses. Counts its calls.
class NumberStream : public IterableDataset {
 public:
  std::int64_t num_restarts = 0, num_reads = 0, end = kEndless, throws_at = -1, odd_at = -1;

 protected:
  void restart() override {
    ++num_restarts;
    position_ = 0;
  }
  std::vector<at::Tensor> next(std::int64_t number) override {
    EXPECT_EQ(number, position_);
    if (number == throws_at) {
      throws_at = -1;
      throw std::runtime_error("a broken record");
    }
    ++num_reads;
    if (position_++ == end) return {};
    value_.fill_(number);
    if (number == odd_at) return {at::zeros({2}), value_};
    return {value_, at::scalar_tensor(sample_random(number).uniform(), at::kDouble)};
  }

 private:
  std::int64_t position_ = -1;
  at::Tensor value_ = at::zeros({}, at::kLong);
};

std::vector<std::int64_t> numbers_of_batch(const Batch& batch) {
  const at::Tensor numbers = batch[0].contiguous();
  return {numbers.const_data_ptr<std::int64_t>(), numbers.const_data_ptr<std::int64_t>() + numbers.numel()};
}

using SampleNumbers = std::vector<std::int64_t>;

TEST(IterableDataset, BatchesHaveItsSamplesInOrder) {
  const auto numbers = std::make_shared<NumberStream>();
  DataLoader loader(numbers, {.batch_size = 3, .shuffle = true, .seed = 7});
  EXPECT_TRUE(loader.is_endless());
  std::int64_t count = 0;
  for (const Batch& batch : loader) {
    EXPECT_EQ(numbers_of_batch(batch), (SampleNumbers{3 * count, 3 * count + 1, 3 * count + 2}));
    EXPECT_EQ(batch[1][1].item<double>(), SampleRandom(7, 0, 3 * count + 1).uniform());
    if (++count == 4) break;
  }
  EXPECT_EQ(numbers->num_restarts, 1);
  EXPECT_EQ(numbers->num_reads, 12);
}

TEST(IterableDataset, AnEarlierPositionBeginsAgain) {
  const auto numbers = std::make_shared<NumberStream>();
  DataLoader loader(numbers, {.batch_size = 2});
  DataLoader::Cursor cursor(loader);
  Batch batch;
  cursor.seek(0, 5);
  ASSERT_TRUE(cursor.next(batch));
  EXPECT_EQ(numbers_of_batch(batch), (SampleNumbers{10, 11}));
  EXPECT_TRUE(at::equal(cursor.indices(), at::tensor({10, 11}, at::kLong)));
  cursor.seek(0, 1);
  ASSERT_TRUE(cursor.next(batch));
  EXPECT_EQ(numbers_of_batch(batch), (SampleNumbers{2, 3}));
  EXPECT_EQ(numbers->num_restarts, 2);
}

TEST(IterableDataset, EachRankHasItsPartOfTheSamples) {
  const auto numbers = std::make_shared<NumberStream>(), other = std::make_shared<NumberStream>();
  DataLoader loader(numbers, {.batch_size = 2}), other_loader(other, {.batch_size = 2});
  DataLoader::Cursor first(loader), second(other_loader);
  first.shard(0, 2);
  second.shard(1, 2);
  Batch batch;
  for (std::int64_t begin = 0; begin < 12; begin += 4) {
    ASSERT_TRUE(first.next(batch));
    EXPECT_EQ(numbers_of_batch(batch), (SampleNumbers{begin, begin + 2}));
    ASSERT_TRUE(second.next(batch));
    EXPECT_EQ(numbers_of_batch(batch), (SampleNumbers{begin + 1, begin + 3}));
  }
  EXPECT_EQ(numbers->num_restarts + other->num_restarts, 2);
}

// Shards of one batch go back to samples that another has passed.
TEST(IterableDataset, ShardsOfABatchReadEachSampleOnce) {
  const auto numbers = std::make_shared<NumberStream>();
  DataLoader loader(numbers, {.batch_size = 6});
  std::vector<DataLoader::Cursor> shards(3, DataLoader::Cursor(loader));
  for (std::int64_t i = 0; i < 3; ++i) {
    shards[static_cast<std::size_t>(i)].shard(i, 3);
    shards[static_cast<std::size_t>(i)].take_batches_of(2);
  }
  Batch batch;
  for (std::int64_t begin = 0; begin < 24; begin += 6)
    for (std::int64_t i = 0; i < 3; ++i) {
      ASSERT_TRUE(shards[static_cast<std::size_t>(i)].next(batch));
      EXPECT_EQ(numbers_of_batch(batch), (SampleNumbers{begin + i, begin + i + 3}));
    }
  EXPECT_EQ(numbers->num_restarts, 1);
  EXPECT_EQ(numbers->num_reads, 24);
}

TEST(IterableDataset, WorkersReturnTheSameBatches) {
  DataLoader loader(std::make_shared<NumberStream>(), {.batch_size = 3, .seed = 1, .num_workers = 1}),
      expected(std::make_shared<NumberStream>(), {.batch_size = 3, .seed = 1, .num_workers = 0});
  DataLoader::Cursor cursor(loader), expected_cursor(expected);
  Batch batch, wanted;
  for (const std::int64_t start : {0, 2}) {
    cursor.seek(0, start);
    expected_cursor.seek(0, start);
    for (int i = 0; i < 20; ++i) {
      ASSERT_TRUE(cursor.next(batch) && expected_cursor.next(wanted));
      EXPECT_TRUE(at::equal(batch[0], wanted[0]) && at::equal(batch[1], wanted[1]));
    }
  }
}

TEST(IterableDataset, ContinuesAfterAnException) {
  const auto numbers = std::make_shared<NumberStream>();
  numbers->throws_at = 4;
  DataLoader loader(numbers, {.batch_size = 3});
  DataLoader::Cursor cursor(loader);
  Batch batch;
  ASSERT_TRUE(cursor.next(batch));
  EXPECT_THROW(cursor.next(batch), std::runtime_error);
  ASSERT_TRUE(cursor.next(batch));
  EXPECT_EQ(numbers_of_batch(batch), (SampleNumbers{3, 4, 5}));
}

std::string stream_error_of(const std::shared_ptr<NumberStream>& numbers) {
  DataLoader loader(numbers, {.batch_size = 4});
  DataLoader::Cursor cursor(loader);
  Batch batch;
  return error_text<DataError>([&] {
    for (int i = 0; i < 3; ++i) cursor.next(batch);
  });
}

TEST(IterableDataset, RefusesSamplesThatEndOrDiffer) {
  const auto ends = std::make_shared<NumberStream>(), differs = std::make_shared<NumberStream>();
  ends->end = 9;
  differs->odd_at = 6;
  EXPECT_TRUE(
      stream_error_of(ends).starts_with("sample 9: IterableDataset::next: the samples have ended after 9"))
      << stream_error_of(ends);
  EXPECT_NE(stream_error_of(differs).find("tensor 0 of sample 6 is Float [2]; expected: Long []"),
            std::string::npos)
      << stream_error_of(differs);
}

// It may have taken hours to come this far.
TEST(IterableDataset, AnErrorIsReportedWithoutReadingAgain) {
  for (const std::int64_t num_workers : {0, 1}) {
    const auto numbers = std::make_shared<NumberStream>();
    numbers->end = 90;
    DataLoader loader(numbers, {.batch_size = 4, .num_workers = num_workers});
    DataLoader::Cursor cursor(loader);
    Batch batch;
    EXPECT_THROW(
        {
          while (cursor.next(batch)) {
          }
        },
        DataError);
    EXPECT_LE(numbers->num_restarts, 2) << num_workers;  // a worker's first batch is gathered twice
    EXPECT_LE(numbers->num_reads, 95) << num_workers;
  }
}

// Batches after the last one that a caller wants are not gathered ahead, so the stream is not behind them.
TEST(IterableDataset, WorkersStopWhereTheEpochDoes) {
  const auto numbers = std::make_shared<NumberStream>();
  DataLoader loader(numbers, {.batch_size = 2, .num_workers = 1});
  DataLoader::Cursor cursor(loader);
  cursor.gather_ahead_up_to(5);
  Batch batch;
  for (std::int64_t epoch = 0; epoch < 4; ++epoch) {
    cursor.begin_at(10 * epoch);
    cursor.seek(epoch);
    for (std::int64_t i = 0; i < 5; ++i) {
      ASSERT_TRUE(cursor.next(batch));
      EXPECT_EQ(numbers_of_batch(batch).front(), 10 * epoch + 2 * i);
    }
  }
  EXPECT_EQ(numbers->num_restarts, 1);
  EXPECT_EQ(numbers->num_reads, 40);
}

// Samples that are a function of their number need no stream.
TEST(DataLoader, EndlessDataOfADatasetKeepNoOrder) {
  struct Squares : Dataset {
    std::int64_t size() const override { return kEndless; }
    bool has_views() const override { return true; }
    void gather(const at::Tensor& indices, Batch& batch) const override { batch = {indices * indices}; }
  };
  DataLoader loader(std::make_shared<Squares>(), {.batch_size = 2, .shuffle = true});
  DataLoader::Cursor cursor(loader);
  Batch batch;
  cursor.seek(0, 1'000'000'000);
  ASSERT_TRUE(cursor.next(batch));
  EXPECT_EQ(numbers_of_batch(batch), (SampleNumbers{4'000'000'000'000'000'000, 4'000'000'004'000'000'001}));

  struct Twice : Sampler {
    std::int64_t size() const override { return 4; }
    at::Tensor order(std::int64_t) const override { return at::tensor({7, 1'000'000'000, 7, 8}, at::kLong); }
  };
  DataLoader chosen(std::make_shared<Squares>(),
                    {.batch_size = 4, .num_random_numbers = 1, .sampler = std::make_shared<Twice>()});
  ASSERT_TRUE(chosen.next(batch));
  EXPECT_EQ(numbers_of_batch(batch), (SampleNumbers{49, 1'000'000'000'000'000'000, 49, 64}));
  EXPECT_NE(batch.random_numbers()[0].item<double>(), batch.random_numbers()[2].item<double>());
}

}  // namespace
}  // namespace kindling
