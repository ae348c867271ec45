#include "kindling/data/sample_random.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <thread>
#include <vector>

#include "kindling/base/error.h"
#include "support/scratch.h"

namespace kindling {
namespace {

// The known answer of Random123 (kat_vectors): philox4x32 10, counter 0, key 0.
TEST(SampleRandomTest, IsPhilox) {
  SampleRandom random(0, 0, 0);
  EXPECT_EQ(random(), 0xe169c58d6627e8d5U);
  EXPECT_EQ(random(), 0x9b00dbd8bc57ac4cU);
}

// Computed in Python after the same paper, for the counter (1, 2, 5, 1) and the key (7, 9).
TEST(SampleRandomTest, CounterHoldsBlockEpochAndSample) {
  const std::uint64_t seed = 7 | std::uint64_t{9} << 32;
  SampleRandom random(seed, /*epoch=*/2, /*sample=*/5 | std::int64_t{1} << 32);
  random();
  random();
  EXPECT_EQ(random(), 0xa848a0f3001c5bf0U);
  EXPECT_EQ(random(), 0x7a2ad2b4b53069acU);
}

TEST(SampleRandomTest, StreamsDifferBySeedEpochAndSample) {
  std::vector<std::uint64_t> first;
  for (std::uint64_t seed = 0; seed < 10; ++seed)
    for (std::int64_t epoch = 0; epoch < 10; ++epoch)
      for (std::int64_t sample = 0; sample < 10; ++sample)
        first.push_back(SampleRandom(seed, epoch, sample)());
  std::ranges::sort(first);
  EXPECT_EQ(std::ranges::adjacent_find(first), first.end());
}

TEST(SampleRandomTest, UniformNumbersFillTheIntervalEvenly) {
  double sum = 0, squares = 0, smallest = 1, largest = 0;
  constexpr int kNumbers = 100'000;
  for (int i = 0; i < kNumbers; ++i) {
    const double u = SampleRandom(1, 0, i).uniform();
    sum += u;
    squares += u * u;
    smallest = std::min(smallest, u);
    largest = std::max(largest, u);
  }
  EXPECT_NEAR(sum / kNumbers, 0.5, 0.005);
  EXPECT_NEAR(squares / kNumbers, 1.0 / 3, 0.005);
  EXPECT_GE(smallest, 0);
  EXPECT_LT(largest, 1);
}

TEST(SampleRandomTest, BelowIsUniform) {
  SampleRandom random(3, 0, 0);
  std::vector<int> counts(7);
  for (int i = 0; i < 70'000; ++i) ++counts[static_cast<std::size_t>(random.below(7))];
  for (const int count : counts) EXPECT_NEAR(count, 10'000, 500);
  EXPECT_EQ(random.below(1), 0);
}

TEST(SampleRandomTest, NormalHasMeanZeroAndVarianceOne) {
  SampleRandom random(4, 0, 0);
  double sum = 0, squares = 0;
  constexpr int kNumbers = 100'000;
  for (int i = 0; i < kNumbers; ++i) {
    const double x = random.normal();
    sum += x;
    squares += x * x;
  }
  EXPECT_NEAR(sum / kNumbers, 0, 0.02);
  EXPECT_NEAR(squares / kNumbers, 1, 0.02);
}

TEST(SampleStreamsTest, CurrentOutsideOfGatherIsAnError) {
  EXPECT_EQ(error_text<DataError>([&] { sample_random(3); }),
            "SampleStreams::current: no loader is gathering a batch on this thread; expected: a call inside "
            "of Dataset::gather; call it before you start threads, and give them the result; around your "
            "own call of gather, create a SampleStreams::Scope");
}

TEST(SampleStreamsTest, ScopeSetsTheStreamsOfItsThread) {
  const SampleStreams streams(5, 6);
  const SampleStreams::Scope scope(streams);
  EXPECT_EQ(sample_random(7)(), SampleRandom(5, 6, 7)());
  {
    const SampleStreams::Scope inner(SampleStreams(8, 9));
    EXPECT_EQ(sample_random(7)(), SampleRandom(8, 9, 7)());
  }
  EXPECT_EQ(sample_random(7)(), SampleRandom(5, 6, 7)());
  bool has_thrown = false;
  std::thread([&] {
    try {
      sample_random(7);
    } catch (const DataError&) {
      has_thrown = true;
    }
  }).join();
  EXPECT_TRUE(has_thrown);
}

}  // namespace
}  // namespace kindling
