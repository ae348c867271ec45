#include "kindling/distributed/process_group.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "kindling/base/error.h"
#include "support/rank_threads.h"
#include "support/scratch.h"

namespace kindling {
namespace {

TEST(ProcessGroup, AddsUpToTheSameBitsEverywhere) {
  std::vector<at::Tensor> sums(4);
  on_ranks(4, [&](ProcessGroup& group) {
    at::Tensor mine = at::arange(1000, at::kFloat).div(3 + group.rank());
    group.all_reduce(mine);
    sums[static_cast<std::size_t>(group.rank())] = mine;
  });
  for (const at::Tensor& sum : sums) EXPECT_TRUE(sum.equal(sums[0]));
  EXPECT_FLOAT_EQ(sums[0][999].item<float>(), 999 * (1.F / 3 + 1.F / 4 + 1.F / 5 + 1.F / 6));
}

TEST(ProcessGroup, BroadcastsTensorsOfAllTypesInPlace) {
  on_ranks(3, [&](ProcessGroup& group) {
    const auto of = static_cast<double>(group.rank());
    std::vector<at::Tensor> tensors{at::full({2, 3}, of),
                                    at::full({}, group.rank(), at::kLong),
                                    at::full({4, 5}, of, at::kDouble).t(),
                                    at::zeros({0}),
                                    at::Tensor(),
                                    at::full({7}, of)};
    group.broadcast(tensors, /*root=*/2);
    for (const at::Tensor& tensor : tensors)
      EXPECT_TRUE(!tensor.defined() || tensor.eq(2).all().item<bool>()) << tensor;
  });
}

TEST(ProcessGroup, GathersTextsOfDifferentLengths) {
  on_ranks(3, [&](ProcessGroup& group) {
    const auto rank = static_cast<std::size_t>(group.rank());
    EXPECT_EQ(group.all_gather(std::string(rank * 2, 'x')), (std::vector<std::string>{"", "xx", "xxxx"}));
    EXPECT_EQ(group.all_gather(""), (std::vector<std::string>{"", "", ""}));
  });
}

TEST(ProcessGroup, ExchangesInPairs) {
  on_ranks(4, [&](ProcessGroup& group) {
    const at::Tensor mine = at::full({5}, static_cast<double>(group.rank())), theirs = at::zeros({5});
    group.exchange(mine, theirs, group.rank() ^ 1);
    EXPECT_TRUE(theirs.eq(static_cast<double>(group.rank() ^ 1)).all().item<bool>());
  });
}

TEST(ProcessGroup, NamesTheFirstDifferenceInAllProcesses) {
  on_ranks(2, [&](ProcessGroup& group) {
    EXPECT_NO_THROW(group.require_same("here", {{"a", "1"}, {"b", "2"}}));
    try {
      group.require_same("the start", {{"a", "1"}, {"b", group.rank() == 0 ? "2" : "3"}});
      ADD_FAILURE() << "no error in process " << group.rank();
    } catch (const DistributedError& error) {
      EXPECT_STREQ(
          error.what(),
          "the start: b is '3' in process 1 and '2' in process 0; wanted: the same in all processes");
    }
    const ProcessGroup::NamedTexts more =
        group.rank() == 0 ? ProcessGroup::NamedTexts{} : ProcessGroup::NamedTexts{{"c", "5"}};
    EXPECT_THROW(group.require_same("the start", more), DistributedError);
  });
}

// torchrun's agent keeps its store, in which a group that it starts anew finds what the former one has left.
TEST(ProcessGroup, ThatIsStartedAnewMeetsInTheSameStore) {
  const Scratch scratch;
  const auto join = [&](std::int64_t restart_count) {
    std::vector<std::shared_ptr<ProcessGroup>> groups(2);
    std::vector<std::thread> threads;
    for (std::int64_t rank = 0; rank < 2; ++rank)
      threads.emplace_back([&, rank] {
        try {
          groups[static_cast<std::size_t>(rank)] = ProcessGroup::join({.rank = rank,
                                                                       .size = 2,
                                                                       .local_rank = rank,
                                                                       .local_size = 2,
                                                                       .restart_count = restart_count,
                                                                       .store_file = scratch / "store"},
                                                                      {.timeout_s = 5});
        } catch (const Error& error) {
          ADD_FAILURE() << "start " << restart_count << ": " << error.what();
        }
      });
    for (std::thread& thread : threads) thread.join();
    return groups;
  };
  const auto first = join(0);
  first[0]->leave("it was killed");
  auto second = join(1);
  ASSERT_TRUE(second[0] && second[1]);
  on_ranks(second, [](ProcessGroup& group) {
    const at::Tensor sum = at::full({1}, 1 + group.rank());
    group.all_reduce(sum);
    EXPECT_EQ(sum.item<std::int64_t>(), 3);
  });
  second[0].reset();  // without a word: that of the former group is not its
  try {
    second[1]->barrier();
    ADD_FAILURE() << "nobody was missed";
  } catch (const DistributedError& error) {
    EXPECT_EQ(std::string(error.what()).find("it was killed"), std::string::npos) << error.what();
  }
}

TEST(ProcessGroup, TellsWhyAnotherOneHasLeft) {
  on_ranks(3, [&](ProcessGroup& group) {
    if (group.rank() == 1) return group.leave("no data");
    try {
      for (int i = 0; i < 3; ++i) group.barrier();
      ADD_FAILURE();
    } catch (const DistributedError& error) {
      EXPECT_NE(std::string(error.what()).find("process 1: no data"), std::string::npos) << error.what();
    }
    group.leave("");
  });
}

TEST(ProcessGroup, OneThatIsSilentCountsAsLostAfterTheTimeout) {
  const auto start = std::chrono::steady_clock::now();
  auto groups = ProcessGroup::of_threads(2, {.timeout_s = 0.5});
  try {
    groups[0]->barrier();
    ADD_FAILURE();
  } catch (const DistributedError& error) {
    EXPECT_NE(std::string(error.what()).find("did not answer for 0.5 s"), std::string::npos) << error.what();
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
  groups[0]->leave("");
  EXPECT_THROW(groups[0]->barrier(), DistributedError);
}

}  // namespace
}  // namespace kindling
