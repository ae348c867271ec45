#include "cli/run/rank_threads.h"

#include <gtest/gtest.h>

#include <utility>

namespace kindling {
namespace {

using Cores = std::set<std::int64_t>;

TEST(CoreLists, AreReadAsTheKernelWritesThem) {
  EXPECT_EQ(cores_in_list("0"), Cores({0}));
  EXPECT_EQ(cores_in_list("0-3,8"), Cores({0, 1, 2, 3, 8}));
  EXPECT_EQ(cores_in_list("1,5-6,64"), Cores({1, 5, 6, 64}));
  EXPECT_EQ(cores_in_list("2-1"), Cores());
  for (const char* list : {"", "x", "-"}) EXPECT_EQ(cores_in_list(list), Cores()) << list;
  EXPECT_EQ(cores_in_list("1,x"), Cores({1}));
  EXPECT_LT(cores_in_list("0-99999999999").size(), 2'000'000u);
}

RankThreads of_rank(std::size_t rank, const std::vector<RankCores>& ranks) {
  return threads_of_rank(rank, ranks);
}

// A row: the cores of each rank, then the threads of each.
TEST(RankThreads, AreTheCoresThatARankHasForItself) {
  const Cores two{0, 1}, four{0, 1, 2, 3};
  const std::vector<std::pair<std::vector<RankCores>, std::vector<std::int64_t>>> table{
      {{{"a", two}}, {2}},
      {{{"a", two}, {"a", two}}, {1, 1}},        // srun without binding
      {{{"a", {0}}, {"a", {1}}}, {1, 1}},        // mpirun binds to cores
      {{{"a", {0, 1}}, {"a", {2, 3}}}, {2, 2}},  // srun with task/affinity
      {{{"a", four}, {"a", four}}, {2, 2}},
      {{{"a", four}, {"a", four}, {"a", four}}, {1, 1, 1}},
      {{{"a", two}, {"a", two}, {"a", two}}, {1, 1, 1}},  // more ranks than cores
      {{{"a", four}, {"b", four}}, {4, 4}},               // on two machines
      {{{"a", four}, {"b", two}, {"a", four}}, {2, 2, 2}},
      {{{"a", four}, {"a", {0}}}, {3, 1}},  // of core 0 each has a half
  };
  for (std::size_t row = 0; row < table.size(); ++row)
    for (std::size_t rank = 0; rank < table[row].first.size(); ++rank)
      EXPECT_EQ(of_rank(rank, table[row].first).num_threads, table[row].second[rank])
          << "row " << row << " rank " << rank;
}

TEST(RankThreads, HaveAReason) {
  EXPECT_EQ(of_rank(0, {{"a", {0, 1}}}).reason,
            "2 threads for operators, because 1 rank has 2 cores of this machine");
  EXPECT_EQ(of_rank(1, {{"a", {0, 1}}, {"a", {0, 1}}, {"b", {0, 1, 2}}}).reason,
            "1 thread for operators, because 2 ranks share 2 cores of this machine");
}

TEST(RankThreads, WarnAboutCoresThatAreSharedOrUnused) {
  const Cores two{0, 1}, three{0, 1, 2};
  for (const std::vector<RankCores>& ranks :
       std::vector<std::vector<RankCores>>{{{"a", two}},
                                           {{"a", two}, {"a", two}},
                                           {{"a", {0}, two}, {"a", {1}, two}},
                                           {{"a", two}, {"b", two}}})
    EXPECT_EQ(of_rank(0, ranks).warning, "");
  EXPECT_EQ(
      of_rank(0, {{"a", two}, {"a", two}, {"a", two}}).warning,
      "3 ranks share 2 cores of this machine, so they wait for each other; start at most one rank per core");
  EXPECT_EQ(
      of_rank(0, {{"a", three}, {"a", three}}).warning,
      "2 ranks share 3 cores of this machine and leave 1 unused; start a number of ranks that divides the "
      "number of cores");
  // mpirun -np 1 binds its only rank to one of two cores.
  EXPECT_EQ(
      of_rank(0, {{"a", {0}, two}}).warning,
      "the launcher binds its ranks to 1 core of this machine and leaves 1 unused; start more ranks, or give "
      "them all cores (mpirun --bind-to none)");
}

}  // namespace
}  // namespace kindling
