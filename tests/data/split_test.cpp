#include "kindling/data/split.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "kindling/base/error.h"
#include "support/scratch.h"

namespace kindling {
namespace {

using Indices = std::vector<std::int64_t>;

// The expected numbers come from a Python program that implements the same definition.
TEST(Split, HasLiteralIndicesForAFraction) {
  EXPECT_EQ(split_indices(10, {.val_fraction = 0.3}).val, (Indices{4, 5, 8}));
  EXPECT_EQ(split_indices(10, {.val_fraction = 0.3}).train, (Indices{0, 1, 2, 3, 6, 7, 9}));
  EXPECT_EQ(split_indices(10, {.val_fraction = 0.3, .seed = 1}).val, (Indices{1, 5, 6}));
}

TEST(Split, HasLiteralIndicesForFolds) {
  EXPECT_EQ(split_indices(10, {.folds = 3, .fold = 0}).val, (Indices{2, 3, 6, 9}));
  EXPECT_EQ(split_indices(10, {.folds = 3, .fold = 1}).val, (Indices{0, 4, 8}));
  EXPECT_EQ(split_indices(10, {.folds = 3, .fold = 2}).val, (Indices{1, 5, 7}));
}

TEST(Split, HasLiteralIndicesForClasses) {
  const Indices classes{0, 0, 0, 0, 0, 0, 1, 1, 1, 1};
  EXPECT_EQ(split_indices(10, {.folds = 2, .fold = 0, .classes = classes}).val, (Indices{0, 1, 4, 6, 8}));
  EXPECT_EQ(split_indices(10, {.val_fraction = 0.5, .classes = classes}).val, (Indices{0, 1, 4, 6, 8}));
}

// Every sample is on one side, once, and over all folds validated once.
void expect_partition(std::int64_t n, SplitOptions options) {
  std::vector<int> times(static_cast<std::size_t>(n));
  for (options.fold = 0; options.fold < *options.folds; ++options.fold) {
    const SplitIndices split = split_indices(n, options);
    std::set<std::int64_t> all(split.train.begin(), split.train.end());
    all.insert(split.val.begin(), split.val.end());
    ASSERT_EQ(split.train.size() + split.val.size(), static_cast<std::size_t>(n));
    ASSERT_EQ(all.size(), static_cast<std::size_t>(n));
    ASSERT_EQ(*all.begin(), 0);
    ASSERT_EQ(*all.rbegin(), n - 1);
    for (const std::int64_t i : split.val) ++times[static_cast<std::size_t>(i)];
  }
  EXPECT_EQ(times, std::vector<int>(static_cast<std::size_t>(n), 1));
}

// Skewed: class c has about a third of the samples that class c - 1 has.
Indices skewed(std::int64_t n, std::int64_t count) {
  Indices codes;
  for (std::int64_t i = 0; i < n; ++i) {
    std::int64_t code = 0;
    for (std::int64_t rest = (i * 7919) % 1009; rest % 3 == 0 && code + 1 < count; rest /= 3) ++code;
    codes.push_back(100 - code);
  }
  return codes;
}

TEST(Split, FoldsPartitionTheSamples) {
  for (const std::int64_t n : {2, 5, 97, 1000})
    for (const std::int64_t folds : {2, 5}) {
      if (folds > n) continue;
      expect_partition(n, {.folds = folds, .seed = n});
      expect_partition(n, {.folds = folds, .seed = n, .classes = skewed(n, 4)});
    }
  expect_partition(500, {.folds = 5, .groups = skewed(500, 7)});
  expect_partition(500, {.folds = 5, .classes = skewed(500, 3), .groups = skewed(500, 7)});
}

TEST(Split, StratifiedFoldsHaveEveryClassWithinOneSample) {
  const std::int64_t n = 997;
  const Indices classes = skewed(n, 5);
  std::map<std::int64_t, double> totals;
  for (const std::int64_t code : classes) totals[code] += 1;
  for (std::int64_t seed = 0; seed < 20; ++seed) {
    SplitOptions options{.val_fraction = 0.23, .seed = seed, .classes = classes};
    std::map<std::int64_t, double> counts;
    for (const std::int64_t i : split_indices(n, options).val)
      counts[classes[static_cast<std::size_t>(i)]] += 1;
    for (const auto& [code, total] : totals) EXPECT_LT(std::abs(counts[code] - 0.23 * total), 1) << code;
    options = {.folds = 7, .fold = seed % 7, .seed = seed, .classes = classes};
    counts.clear();
    const SplitIndices split = split_indices(n, options);
    for (const std::int64_t i : split.val) counts[classes[static_cast<std::size_t>(i)]] += 1;
    for (const auto& [code, total] : totals) EXPECT_LT(std::abs(counts[code] - total / 7), 1) << code;
    EXPECT_TRUE(split.val.size() == 142 || split.val.size() == 143);
  }
}

// scikit-learn 1.7's StratifiedShuffleSplit also validates one of 3 among 51 to 53 samples.
TEST(Split, PutsRareClassesOnBothSides) {
  for (const auto& [rare, common, fraction] : {std::tuple{2, 48, 0.2},
                                               {3, 48, 0.2},
                                               {3, 49, 0.2},
                                               {3, 50, 0.2},
                                               {2, 50, 0.2},
                                               {2, 48, 0.1},
                                               {3, 48, 0.9}})
    for (std::int64_t seed = 0; seed < 5; ++seed) {
      Indices classes(static_cast<std::size_t>(common), 0);
      classes.insert(classes.begin() + 7, static_cast<std::size_t>(rare), 1);
      const auto n = static_cast<std::int64_t>(classes.size());
      const SplitIndices split =
          split_indices(n, {.val_fraction = fraction, .seed = seed, .classes = classes});
      EXPECT_EQ(split.val.size(),
                static_cast<std::size_t>(std::floor(fraction * static_cast<double>(n) + 0.5)));
      const auto rare_in = [&](const Indices& samples) {
        return std::count_if(samples.begin(), samples.end(),
                             [&](std::int64_t i) { return classes[static_cast<std::size_t>(i)] == 1; });
      };
      EXPECT_GE(rare_in(split.val), 1) << rare << " of " << n << ", " << fraction;
      EXPECT_GE(rare_in(split.train), 1) << rare << " of " << n << ", " << fraction;
      EXPECT_EQ(rare_in(split.train) + rare_in(split.val), rare);
    }
  // There is no room for eight classes in four samples, and a single sample stays where it is.
  Indices classes;
  for (std::int64_t i = 0; i < 16; ++i) classes.push_back(i / 2);
  EXPECT_EQ(split_indices(16, {.val_fraction = 0.25, .classes = classes}).val.size(), 4U);
  classes.assign(20, 0);
  classes[3] = 1;
  EXPECT_EQ(split_indices(20, {.val_fraction = 0.2, .classes = classes}).val.size(), 4U);
}

TEST(Split, ByTimeValidatesTheLastSamples) {
  const SplitIndices split = split_by_time({5, 1, 4, 2, 3, 6, 8, 7, 10, 9}, 0.3);
  EXPECT_EQ(split.val, (Indices{6, 8, 9}));
  EXPECT_EQ(split.train, (Indices{0, 1, 2, 3, 4, 5, 7}));
  // Equal times stay together: 3 of 6 are closer to 2 than 0.
  EXPECT_EQ(split_by_time({1, 1, 2, 3, 3, 3}, 0.3).val, (Indices{3, 4, 5}));
  EXPECT_EQ(split_by_time({1, 2, 2, 2, 2, 2}, 0.01).val, (Indices{1, 2, 3, 4, 5}));
  EXPECT_EQ(error_text<ConfigError>([] {
              split_by_time({2, 2, 2}, 0.5, "data");
            }),
            "data.time: all times are equal; expected: at least two different times");
}

TEST(Split, NoGroupIsOnBothSides) {
  const Indices groups = skewed(600, 40), classes = skewed(600, 3);
  for (std::int64_t seed = 0; seed < 10; ++seed)
    for (const SplitOptions& options :
         {SplitOptions{.val_fraction = 0.2, .seed = seed, .groups = groups},
          SplitOptions{.val_fraction = 0.2, .seed = seed, .classes = classes, .groups = groups},
          SplitOptions{.folds = 3, .fold = seed % 3, .seed = seed, .groups = groups},
          SplitOptions{.folds = 3, .fold = seed % 3, .seed = seed, .classes = classes, .groups = groups}}) {
      const SplitIndices split = split_indices(600, options);
      std::set<std::int64_t> train, val;
      for (const std::int64_t i : split.train) train.insert(groups[static_cast<std::size_t>(i)]);
      for (const std::int64_t i : split.val) val.insert(groups[static_cast<std::size_t>(i)]);
      for (const std::int64_t group : val) EXPECT_FALSE(train.contains(group));
    }
}

TEST(Split, GroupsOfEqualSizeAreBalanced) {
  Indices groups;
  for (std::int64_t i = 0; i < 200; ++i) groups.push_back(i % 50);  // 4 samples each
  EXPECT_EQ(split_indices(200, {.val_fraction = 0.2, .groups = groups}).val.size(), 40U);
  for (std::int64_t fold = 0; fold < 5; ++fold)
    EXPECT_EQ(split_indices(200, {.folds = 5, .fold = fold, .groups = groups}).val.size(), 40U);
}

TEST(Split, ValidatesTheSmallestGroupIfAllAreLargerThanTheFraction) {
  EXPECT_EQ(split_indices(7, {.val_fraction = 0.1, .groups = {1, 1, 1, 1, 2, 2, 2}}).val, (Indices{4, 5, 6}));
}

TEST(Split, DependsOnTheSeed) {
  EXPECT_EQ(split_indices(1000, {.val_fraction = 0.2, .seed = 3}).val,
            split_indices(1000, {.val_fraction = 0.2, .seed = 3}).val);
  EXPECT_NE(split_indices(1000, {.val_fraction = 0.2, .seed = 3}).val,
            split_indices(1000, {.val_fraction = 0.2, .seed = 4}).val);
}

template <class Failure>
std::string message(std::int64_t n, const SplitOptions& options) {
  try {
    split_indices(n, options);
  } catch (const Failure& error) {
    return error.what();
  }
  return "no error";
}

TEST(Split, RefusesOptionsOutOfRange) {
  EXPECT_EQ(message<ConfigError>(4, {.folds = 5, .place = "data"}),
            "data.folds: 5 folds of 4 samples; expected: at least 2 folds, and at most one per sample; use "
            "fewer folds");
  EXPECT_EQ(message<ConfigError>(4, {.folds = 1}),
            "split.folds: 1 fold of 4 samples; expected: at least 2 folds, and at most one per sample; for a "
            "single split, set val_fraction instead");
  EXPECT_EQ(message<ConfigError>(9, {.folds = 3, .fold = 3}),
            "split.fold: 3; expected: a number from 0 to 2; folds are counted from 0");
  EXPECT_EQ(message<ConfigError>(9, {.val_fraction = 1.0}),
            "split.val_fraction: 1; expected: a number > 0 and < 1; for example 0.2");
  EXPECT_EQ(message<ConfigError>(9, {}),
            "split: neither val_fraction nor folds is set; expected: one of them; for example val_fraction = "
            "0.2");
  EXPECT_EQ(
      message<ConfigError>(9, {.val_fraction = 0.5, .folds = 2}),
      "split: both val_fraction and folds are set; expected: one of them; for example val_fraction = 0.2");
  EXPECT_EQ(message<ConfigError>(3, {.val_fraction = 0.1}),
            "split.val_fraction: no sample is left for validation among 3 samples; expected: at least one; "
            "validate a larger fraction");
  EXPECT_EQ(message<ConfigError>(3, {.val_fraction = 0.9}),
            "split.val_fraction: no sample is left for training among 3 samples; expected: at least one; "
            "validate a smaller fraction");
}

TEST(Split, RefusesTooFewGroups) {
  EXPECT_EQ(message<ConfigError>(4, {.folds = 3, .groups = {1, 1, 2, 2}, .place = "data"}),
            "data.group: 2 groups; expected: at least 3, one for each fold; use fewer folds");
  EXPECT_EQ(message<ConfigError>(4, {.val_fraction = 0.5, .groups = {1, 1, 1, 1}}),
            "split.group: 1 group; expected: at least 2, to validate one of them; split without groups");
}

TEST(Split, RefusesAWrongNumberOfClassesOrGroups) {
  EXPECT_EQ(message<DataError>(4, {.val_fraction = 0.5, .classes = {1, 2}}),
            "split: 2 classes; expected: one for each of the 4 samples");
  EXPECT_EQ(message<DataError>(4, {.val_fraction = 0.5, .groups = {1}}),
            "split: 1 groups; expected: one for each of the 4 samples");
  EXPECT_EQ(message<DataError>(0, {.val_fraction = 0.5}),
            "split: there are no samples; expected: at least two");
}

}  // namespace
}  // namespace kindling
