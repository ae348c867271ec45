#include "graph/replay/memory_plan.h"

#include <c10/core/alignment.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace kindling {
namespace {

std::size_t rounded_up(std::size_t num_bytes) {
  return (num_bytes + c10::gAlignment - 1) / c10::gAlignment * c10::gAlignment;
}

std::size_t sum_at(const std::vector<MemoryNeed>& needs, std::size_t moment) {
  std::size_t sum = 0;
  for (const MemoryNeed& need : needs)
    if (need.first <= moment && moment <= need.last) sum += rounded_up(need.num_bytes);
  return sum;
}

constexpr std::size_t kMoments = 60;

// The lower bound of every plan.
std::size_t largest_sum(const std::vector<MemoryNeed>& needs) {
  std::size_t largest = 0;
  for (std::size_t moment = 0; moment < kMoments; ++moment)
    largest = std::max(largest, sum_at(needs, moment));
  return largest;
}

void expect_apart(const std::vector<MemoryNeed>& needs, const MemoryPlan& plan) {
  ASSERT_EQ(plan.offsets.size(), needs.size());
  for (std::size_t i = 0; i < needs.size(); ++i) {
    EXPECT_EQ(plan.offsets[i] % c10::gAlignment, 0U);
    EXPECT_LE(plan.offsets[i] + needs[i].num_bytes, plan.num_bytes);
    for (std::size_t k = 0; k < i; ++k) {
      const bool meet = needs[i].first <= needs[k].last && needs[k].first <= needs[i].last;
      const bool overlap = plan.offsets[i] < plan.offsets[k] + needs[k].num_bytes &&
                           plan.offsets[k] < plan.offsets[i] + needs[i].num_bytes;
      EXPECT_FALSE(meet && overlap) << i << " and " << k;
    }
  }
}

// Short and long lives, all sizes from nothing to megabytes.
std::vector<MemoryNeed> random_needs(unsigned seed) {
  std::mt19937 random(seed);
  const auto pick = [&](std::size_t least, std::size_t most) {
    return std::uniform_int_distribution(least, most)(random);
  };
  std::vector<MemoryNeed> needs(pick(1, 80));
  for (MemoryNeed& need : needs) {
    const std::size_t magnitude = pick(0, 20);
    const std::size_t first = pick(0, kMoments - 1);
    const std::size_t longest = pick(0, 3) == 0 ? kMoments - 1 : std::min(first + 5, kMoments - 1);
    need = {.num_bytes = pick(0, std::size_t{1} << magnitude), .first = first, .last = pick(first, longest)};
  }
  return needs;
}

TEST(MemoryPlan, SeparatesPiecesNeededAtTheSameTime) {
  for (unsigned seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    const auto needs = random_needs(seed);
    const MemoryPlan plan = plan_memory(needs);
    expect_apart(needs, plan);
    EXPECT_EQ(most_at_once(needs), largest_sum(needs));
    std::size_t sum = 0;
    for (const MemoryNeed& need : needs) sum += rounded_up(need.num_bytes);
    EXPECT_LE(plan.num_bytes, sum);
    // Placing the largest first has no such bound in theory; the test accepts half as much again.
    EXPECT_LE(2 * plan.num_bytes, 3 * largest_sum(needs));
  }
}

// A network's forward, whose results wait for its backward, which takes them in reverse.
TEST(MemoryPlan, IsTightForANetwork) {
  std::vector<MemoryNeed> needs;
  for (std::size_t i = 0; i < 20; ++i)
    needs.push_back({.num_bytes = 1000 * (20 - i), .first = i, .last = 40 - i});
  for (std::size_t i = 0; i < 20; ++i)
    needs.push_back({.num_bytes = 1000 * (i + 1), .first = 20 + i, .last = 21 + i});
  const MemoryPlan plan = plan_memory(needs);
  expect_apart(needs, plan);
  EXPECT_LE(10 * plan.num_bytes, 11 * largest_sum(needs));  // within the tenth that a captured step may add
}

TEST(MemoryPlan, ReusesAnOffsetForConsecutivePieces) {
  const std::vector<MemoryNeed> needs{{.num_bytes = 100, .first = 0, .last = 1},
                                      {.num_bytes = 100, .first = 2, .last = 3},
                                      {.num_bytes = 70, .first = 4, .last = 4}};
  EXPECT_EQ(plan_memory(needs).num_bytes, rounded_up(100));
  EXPECT_EQ(plan_memory(needs).offsets, std::vector<std::size_t>(3, 0));
}

TEST(MemoryPlan, IsEmptyWithoutPieces) {
  EXPECT_EQ(plan_memory({}).num_bytes, 0U);
  EXPECT_EQ(plan_memory(std::vector<MemoryNeed>{{.num_bytes = 0, .first = 0, .last = 5}}).num_bytes, 0U);
}

}  // namespace
}  // namespace kindling
