#include <ATen/Functions.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "data/loading/batch_gatherer.h"
#include "kindling/base/error.h"
#include "kindling/data/collated_dataset.h"
#include "kindling/data/data_loader.h"
#include "kindling/data/sample_random.h"
#include "kindling/data/sampler.h"
#include "support/log_lines.h"
#include "support/scratch.h"
#include "support/tensor_matchers.h"

namespace kindling {
namespace {

using namespace std::chrono_literals;

// {index, first random number of the sample, three bytes}, and what a test does in gather.
struct DrawnSamples : Dataset {
  explicit DrawnSamples(std::int64_t n, bool thread_safe = true) : num_samples(n), is_safe(thread_safe) {}
  std::int64_t size() const override { return num_samples; }
  bool is_thread_safe() const override { return is_safe; }
  void gather(const at::Tensor& indices, Batch& batch) const override {
    const std::int64_t count = indices.numel();
    at::Tensor numbers = at::empty({count}, at::kDouble), bytes = at::empty({count, 3}, at::kByte);
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t index = indices.const_data_ptr<std::int64_t>()[i];
      if (on_sample) on_sample(index);
      SampleRandom random = sample_random(index);
      numbers.mutable_data_ptr<double>()[i] = random.uniform();
      for (std::int64_t j = 0; j < 3; ++j)
        bytes.mutable_data_ptr<std::uint8_t>()[3 * i + j] = static_cast<std::uint8_t>(random.below(256));
    }
    batch = Batch{indices.clone(), numbers, bytes};
  }

  std::int64_t num_samples;
  bool is_safe;
  std::function<void(std::int64_t)> on_sample{};
};

// What a batch has of a sample: its index, what gather drew for it, and the numbers for transforms on the
// device.
struct Record {
  std::int64_t index;
  double number;
  std::array<std::uint8_t, 3> bytes;
  std::array<float, 2> transform_numbers;
  bool operator==(const Record&) const = default;
};

std::vector<Record> records_of(const Batch& batch) {
  std::vector<Record> records;
  for (std::int64_t i = 0; i < batch.num_samples(); ++i) {
    const auto* bytes = batch[2].const_data_ptr<std::uint8_t>() + 3 * i;
    const auto* numbers = batch.random_numbers().const_data_ptr<float>() + 2 * i;
    records.push_back({batch[0].const_data_ptr<std::int64_t>()[i],
                       batch[1].const_data_ptr<double>()[i],
                       {bytes[0], bytes[1], bytes[2]},
                       {numbers[0], numbers[1]}});
  }
  return records;
}

std::int64_t num_threads_of_process() {
  std::int64_t count = 0;
  for ([[maybe_unused]] const auto& thread : std::filesystem::directory_iterator("/proc/self/task")) ++count;
  return count;
}

// Waits for what other threads do.
bool becomes_true(const std::function<bool()>& condition) {
  for (int i = 0; i < 2000 && !condition(); ++i) std::this_thread::sleep_for(5ms);
  return condition();
}

struct Split {
  std::int64_t num_workers, num_ranks;
};

constexpr std::int64_t kGlobalBatch = 40;

// The samples of an epoch at their places in the global order. After each of `num_restarts` restarts, all
// ranks have new loaders, which seek to the next global batch; the splits take turns.
std::vector<Record> epoch_of(const std::shared_ptr<const Dataset>& dataset, std::int64_t epoch,
                             const std::vector<Split>& splits, std::int64_t num_restarts) {
  std::vector<Record> all(static_cast<std::size_t>(dataset->size()));
  std::vector<int> counts(all.size());
  const std::int64_t num_batches = (dataset->size() + kGlobalBatch - 1) / kGlobalBatch;
  for (std::int64_t start = 0; start <= num_restarts; ++start) {
    const Split& split = splits[static_cast<std::size_t>(start) % splits.size()];
    const std::int64_t begin = num_batches * start / (num_restarts + 1),
                       end = num_batches * (start + 1) / (num_restarts + 1);
    for (std::int64_t rank = 0; rank < split.num_ranks; ++rank) {
      DataLoader loader(dataset, {.batch_size = kGlobalBatch / split.num_ranks,
                                  .shuffle = true,
                                  .seed = 11,
                                  .num_workers = split.num_workers,
                                  .num_random_numbers = 2});
      DataLoader::Cursor cursor(loader);
      cursor.shard(rank, split.num_ranks);
      cursor.seek(epoch, begin);
      std::int64_t place = begin * kGlobalBatch + rank;
      Batch batch;
      for (std::int64_t next = begin; next < end && cursor.next(batch); ++next)
        if (batch.is_valid())
          for (const Record& record : records_of(batch)) {
            all.at(static_cast<std::size_t>(place)) = record;
            ++counts.at(static_cast<std::size_t>(place));
            place += split.num_ranks;
          }
    }
  }
  EXPECT_EQ(counts, std::vector<int>(all.size(), 1)) << "a sample was lost or came twice";
  return all;
}

// In all 230,000 samples; 2.3 million with KINDLING_SOAK_SAMPLES=83333.
TEST(LoaderGuarantee, SamplesAndNumbersDependOnSeedEpochAndBatchOnly) {
  const char* const of_soak = std::getenv("KINDLING_SOAK_SAMPLES");
  const std::int64_t num_samples = of_soak != nullptr ? std::stoll(of_soak) : 8333;
  const auto dataset = std::make_shared<DrawnSamples>(num_samples);
  for (std::int64_t epoch = 0; epoch < 2; ++epoch) {
    const std::vector<Record> expected = epoch_of(dataset, epoch, {{.num_workers = 0, .num_ranks = 1}}, 0);
    std::set<std::int64_t> distinct;
    for (const Record& record : expected) distinct.insert(record.index);
    EXPECT_EQ(distinct.size(), expected.size());
    std::vector<Split> splits;
    for (const std::int64_t num_workers : {0, 1, 2, 4})
      for (const std::int64_t num_ranks : {1, 2, 4}) {
        splits.push_back({num_workers, num_ranks});
        EXPECT_TRUE(epoch_of(dataset, epoch, {splits.back()}, /*num_restarts=*/20) == expected)
            << num_workers << " workers, " << num_ranks << " ranks";
      }
    EXPECT_TRUE(epoch_of(dataset, epoch, splits, /*num_restarts=*/20) == expected)
        << "other numbers of workers and ranks after each restart";
  }
}

TEST(LoaderWorkers, RunOnOtherThreadsThanTheCaller) {
  auto dataset = std::make_shared<DrawnSamples>(100);
  std::mutex mutex;
  std::map<std::thread::id, int> batches;
  dataset->on_sample = [&](std::int64_t) {
    const std::lock_guard lock(mutex);
    ++batches[std::this_thread::get_id()];
  };
  DataLoader loader(dataset, {.batch_size = 10, .num_workers = 2});
  Batch batch;
  loader.start_epoch(0);
  while (loader.next(batch)) {
  }
  EXPECT_EQ(batches[std::this_thread::get_id()], 10);  // the first batch
  EXPECT_LE(batches.size(), 3U);
  EXPECT_GE(batches.size(), 2U);
}

// 2 per worker and the one that is waited for.
TEST(LoaderWorkers, GatherABoundedNumberOfBatchesAhead) {
  auto dataset = std::make_shared<DrawnSamples>(1000);
  std::atomic<std::int64_t> last = -1;
  dataset->on_sample = [&](std::int64_t index) { last = std::max(last.load(), index); };
  DataLoader loader(dataset, {.batch_size = 1, .num_workers = 1});
  Batch batch;
  loader.start_epoch(0);
  for (int i = 0; i < 10; ++i) loader.next(batch);
  EXPECT_TRUE(becomes_true([&] { return last == 11; }));
  std::this_thread::sleep_for(20ms);
  EXPECT_EQ(last, 11);
}

TEST(LoaderWorkers, ADataSetThatIsNotThreadSafeIsCalledByOneThreadAtATime) {
  auto dataset = std::make_shared<DrawnSamples>(200, /*thread_safe=*/false);
  std::atomic<int> inside = 0;
  std::atomic<int> most = 0;
  dataset->on_sample = [&](std::int64_t) {
    most = std::max(most.load(), ++inside);
    std::this_thread::sleep_for(10us);
    --inside;
  };
  // Training data under way while another loader reads the same set.
  DataLoader train(dataset, {.batch_size = 10, .num_workers = 4}), val(dataset, {.batch_size = 10});
  Batch a, b;
  train.start_epoch(0);
  for (int i = 0; i < 10; ++i) {
    ASSERT_TRUE(train.next(a));
    val.start_epoch(0);
    while (val.next(b)) {
    }
  }
  EXPECT_EQ(most, 1);
}

TEST(LoaderWorkers, AnErrorSurfacesInItsBatchAndNamesTheSample) {
  for (const std::int64_t num_workers : {0, 1, 4}) {
    auto dataset = std::make_shared<DrawnSamples>(100);
    dataset->on_sample = [](std::int64_t index) {
      if (index == 37)
        throw DataError({.place = "shard.bin", .found = "a torn record", .remedy = "copy it again"});
    };
    const std::int64_t before = num_threads_of_process();
    {
      DataLoader loader(dataset, {.batch_size = 10, .num_workers = num_workers});
      Batch batch;
      loader.start_epoch(0);
      for (int i = 0; i < 3; ++i) ASSERT_TRUE(loader.next(batch));
      for (int attempt = 0; attempt < 2; ++attempt) {  // the same batch again
        EXPECT_EQ(error_text<DataError>([&] { loader.next(batch); }),
                  "sample 37 of the data set, epoch 0: shard.bin: a torn record; copy it again");
      }
      dataset->on_sample = nullptr;
      ASSERT_TRUE(loader.next(batch));
      EXPECT_EQ(batch[0][0].item<std::int64_t>(), 30);
    }
    EXPECT_TRUE(becomes_true([&] { return num_threads_of_process() == before; })) << num_workers;
  }
}

TEST(LoaderWorkers, OtherExceptionsKeepTheirTypeAndTheSampleIsLogged) {
  auto dataset = std::make_shared<DrawnSamples>(100);
  dataset->on_sample = [](std::int64_t index) {
    if (index == 42) throw std::out_of_range("beyond the file");
  };
  const LogLines log;
  DataLoader loader(dataset, {.batch_size = 20, .num_workers = 2});
  Batch batch;
  loader.start_epoch(1);
  loader.next(batch);
  loader.next(batch);
  EXPECT_THROW(loader.next(batch), std::out_of_range);
  EXPECT_EQ(log.texts,
            std::vector<std::string>{"data: the exception is about sample 42 of the data set, epoch 1"});
}

TEST(LoaderWorkers, AnErrorThatIsNotAboutASampleStaysAsItIs) {
  auto dataset = std::make_shared<DrawnSamples>(20);
  dataset->on_sample = [](std::int64_t) {
    throw DataError({.place = "server", .found = "the connection was closed"});
  };
  DataLoader loader(dataset, {.batch_size = 10, .num_workers = 2});
  Batch batch;
  loader.start_epoch(0);
  EXPECT_EQ(error_text<DataError>([&] { loader.next(batch); }), "server: the connection was closed");
}

TEST(LoaderWorkers, StoppingInMidEpochLeavesNoThread) {
  const std::int64_t before = num_threads_of_process();
  for (int i = 0; i < 20; ++i) {
    DataLoader loader(std::make_shared<DrawnSamples>(1000), {.batch_size = 10, .num_workers = 4});
    DataLoader::Cursor cursor(loader);
    Batch batch;
    cursor.seek(0);
    for (int j = 0; j <= i; ++j) cursor.next(batch);
  }
  EXPECT_TRUE(becomes_true([&] { return num_threads_of_process() == before; }));
}

TEST(LoaderWorkers, SeekDropsWhatIsUnderWay) {
  const auto dataset = std::make_shared<DrawnSamples>(500);
  DataLoader loader(dataset, {.batch_size = 10, .shuffle = true, .num_workers = 3});
  DataLoader reference(dataset, {.batch_size = 10, .shuffle = true, .num_workers = 0});
  Batch batch, expected;
  for (std::int64_t i = 0; i < 100; ++i) {
    const std::int64_t epoch = i * 7 % 5, start = i * 13 % 47;
    DataLoader::Cursor cursor(loader), other(reference);
    cursor.seek(epoch, start);
    other.seek(epoch, start);
    for (std::int64_t j = 0; j < i % 4; ++j) {
      ASSERT_EQ(cursor.next(batch), other.next(expected));
      EXPECT_TRUE(same(batch[0], expected[0]));
      EXPECT_TRUE(same(batch[1], expected[1]));
      EXPECT_TRUE(same(cursor.indices(), batch[0]));
    }
    DataLoader::Cursor copy = cursor;  // goes on where the cursor is
    if (copy.next(batch)) {
      ASSERT_TRUE(other.next(expected));
      EXPECT_TRUE(same(batch[0], expected[0]));
    }
  }
}

// Held batches are not overwritten by workers.
TEST(LoaderWorkers, DoNotWriteToBatchesInUse) {
  struct Reusing : DrawnSamples {
    using DrawnSamples::DrawnSamples;
    void gather(const at::Tensor& indices, Batch& batch) const override {
      if (batch.empty()) batch = Batch{at::empty({0}, at::kLong)};
      batch.tensors()[0].resize_({indices.numel()}).copy_(indices);
    }
  };
  DataLoader loader(std::make_shared<Reusing>(600), {.batch_size = 10, .num_workers = 4});
  std::vector<Batch> held;
  Batch batch;
  loader.start_epoch(0);
  while (loader.next(batch)) held.push_back(batch);
  for (std::size_t i = 0; i < held.size(); ++i)
    EXPECT_TRUE(same(held[i][0], at::arange(10) + static_cast<std::int64_t>(10 * i)));
}

TEST(LoaderWorkers, RefuseADataSetThatDrawsFromLibTorchsGenerator) {
  const auto dataset = std::make_shared<CollatedDataset>(
      20, [](std::int64_t) { return Batch{at::rand({2})}; },
      [](const std::vector<Batch>& samples) {
        std::vector<at::Tensor> rows;
        for (const Batch& sample : samples) rows.push_back(sample[0]);
        return Batch{at::stack(rows)};
      });
  DataLoader loader(dataset, {.batch_size = 10, .num_workers = 1});
  Batch batch;
  loader.start_epoch(0);
  EXPECT_EQ(error_text<DataError>([&] { loader.next(batch); }),
            "data.num_workers = 1: Dataset::gather draws from LibTorch's default generator, whose numbers "
            "would depend on what the workers do at the same time; expected: random numbers of the samples, "
            "kindling::sample_random(index); or num_workers = 0");
  EXPECT_THROW(loader.next(batch), DataError);  // again
  DataLoader without(dataset, {.batch_size = 10});
  without.start_epoch(0);
  EXPECT_TRUE(without.next(batch));
}

// A thread-safe set without a number of workers: no error, and each batch draws once.
TEST(LoaderWorkers, AreNotStartedForASetThatDrawsFromLibTorchsGenerator) {
  struct Drawing : Dataset {
    std::int64_t size() const override { return 20; }
    bool is_thread_safe() const override { return true; }
    void gather(const at::Tensor& indices, Batch& batch) const override {
      batch = Batch{at::rand({indices.numel()})};
    }
  };
  at::manual_seed(3);
  const at::Tensor expected = at::rand({5});
  at::manual_seed(3);
  DataLoader loader(std::make_shared<Drawing>(), {.batch_size = 5});
  Batch batch;
  loader.start_epoch(0);
  ASSERT_TRUE(loader.next(batch));
  EXPECT_TRUE(same(batch[0], expected));
}

// A large sum depends on the number of operator threads: workers and the caller use one.
TEST(LoaderWorkers, GatherTheSameBytesAsTheCaller) {
  struct Sums : Dataset {
    std::int64_t size() const override { return 40; }
    bool is_thread_safe() const override { return true; }
    void gather(const at::Tensor& indices, Batch& batch) const override {
      batch = Batch{values.sum().expand({indices.numel()}).clone()};
    }
    at::Tensor values = at::rand({300'000});
  };
  const int before = at::get_num_threads();
  at::set_num_threads(1);
  at::manual_seed(0);
  const auto dataset = std::make_shared<Sums>();
  const at::Tensor expected = dataset->values.sum();
  for (const int num_threads : {1, 3, 4}) {
    at::set_num_threads(num_threads);
    DataLoader loader(dataset, {.batch_size = 4, .num_workers = 2});
    for (const Batch& batch : loader) EXPECT_TRUE(same(batch[0], expected.expand({4}))) << num_threads;
    EXPECT_EQ(at::get_num_threads(), num_threads);
  }
  at::set_num_threads(before);
}

TEST(LoaderWorkers, TakeADerivedTensorDatasetForUnsafe) {
  struct Derived : TensorDataset {
    using TensorDataset::TensorDataset;
  };
  const std::vector<at::Tensor> tensors{at::arange(4)};
  EXPECT_TRUE(TensorDataset(tensors).is_thread_safe());
  EXPECT_FALSE(Derived(tensors).is_thread_safe());
}

TEST(LoaderWorkers, AreStartedForAThreadSafeSetThatIsSlow) {
  auto dataset = std::make_shared<DrawnSamples>(400);
  std::mutex mutex;
  std::set<std::thread::id> threads;
  dataset->on_sample = [&](std::int64_t) {
    std::this_thread::sleep_for(200us);
    const std::lock_guard lock(mutex);
    threads.insert(std::this_thread::get_id());
  };
  DataLoader loader(dataset, {.batch_size = 4});
  Batch batch;
  loader.start_epoch(0);
  while (loader.next(batch)) {
  }
  EXPECT_GT(threads.size(), 1U);
}

// Three batches to warm up, then five that take `gather` each, `step` apart.
std::optional<std::int64_t> measured(std::chrono::microseconds gather, std::chrono::microseconds step) {
  MeasuredWorkers workers;
  std::chrono::steady_clock::time_point now{1s};
  for (int i = 0; i < 8; ++i) {
    EXPECT_FALSE(workers.count().has_value());
    workers.add(now, now + gather);
    now += gather + step;
  }
  return workers.count();
}

TEST(MeasuredWorkersTest, NoneForAGatherThatCostsLittle) {
  EXPECT_EQ(measured(/*gather=*/40us, /*step=*/1us), 0);
  EXPECT_EQ(measured(/*gather=*/1ms, /*step=*/60ms), 0);
}

TEST(MeasuredWorkersTest, AsManyAsStepsFitIntoAGather) {
  EXPECT_EQ(measured(/*gather=*/1ms, /*step=*/30ms), 1);
  EXPECT_EQ(measured(/*gather=*/10ms, /*step=*/10ms), 1);
  const auto most = std::max<std::int64_t>(std::int64_t{std::thread::hardware_concurrency()} - 1, 1);
  EXPECT_EQ(measured(/*gather=*/30ms, /*step=*/10ms), std::min<std::int64_t>(3, most));
  EXPECT_EQ(measured(/*gather=*/100ms, /*step=*/1ms), std::min<std::int64_t>(8, most));
}

TEST(LoaderWorkers, AreNotMeasuredForDataInMemory) {
  const LogLines log(LogLevel::info);
  DataLoader loader(std::make_shared<TensorDataset>(std::vector<at::Tensor>{at::rand({2000, 1000})}),
                    {.batch_size = 100, .shuffle = true});
  Batch batch;
  loader.start_epoch(0);
  while (loader.next(batch)) {
  }
  EXPECT_EQ(log.texts, std::vector<std::string>());
}

TEST(LoaderWorkers, ANegativeNumberIsRefused) {
  EXPECT_EQ(error_text<DataError>(
                [&] { DataLoader loader(std::make_shared<DrawnSamples>(10), {.num_workers = -1}); }),
            "DataLoader: num_workers is -1; expected: at least 0");
}

}  // namespace
}  // namespace kindling
