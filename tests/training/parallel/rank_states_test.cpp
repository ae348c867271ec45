#include "training/parallel/rank_states.h"

#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "checkpoint/saved_keys.h"
#include "kindling/base/error.h"
#include "support/rank_threads.h"
#include "support/scratch.h"
#include "tensors/state_tensors.h"

namespace kindling {
namespace {

const std::string kOwn = std::string(*std::begin(saved_keys::kPerRank)) + "x";

// The per-rank entries contain `rank`.
StateDict state_of(std::int64_t rank, const std::string& batch) {
  StateDict state;
  state.tensors.emplace_back("model.weight", at::ones({2}));
  state.tensors.emplace_back(kOwn, at::full({1}, rank));
  state.metadata = {{"progress.batch", batch}, {"progress.phase", "training"}};
  return state;
}

std::int64_t own_number(const StateDict& state) {
  for (const auto& [name, tensor] : state.tensors)
    if (name == kOwn) return tensor.item<std::int64_t>();
  return -1;
}

TEST(RankStates, GatherTheSameFileOnAllRanks) {
  std::vector<std::string> bytes(3);
  on_ranks(3, [&](ProcessGroup& group) {
    const StateDict all = gather_state(state_of(group.rank(), "5"), group);
    bytes[static_cast<std::size_t>(group.rank())] = state_bytes(all);
    EXPECT_EQ(own_number(all), 0);
    EXPECT_EQ(own_number(own_state(all, &group)), group.rank());
    EXPECT_TRUE(has_own_state(all, &group));
    EXPECT_EQ(own_state(all, &group).tensors.size(), 2U);
  });
  EXPECT_EQ(bytes[1], bytes[0]);
  EXPECT_EQ(bytes[2], bytes[0]);
}

TEST(RankStates, LoadWithAnyNumberOfRanksAfterAnEpoch) {
  StateDict of_two, inside;
  on_ranks(2, [&](ProcessGroup& group) {
    const StateDict end = gather_state(state_of(group.rank(), "0"), group);
    const StateDict middle = gather_state(state_of(group.rank(), "5"), group);
    if (group.rank() == 0) of_two = end, inside = middle;
  });
  EXPECT_EQ(own_number(own_state(of_two, nullptr)), 0);
  EXPECT_THROW(own_state(inside, nullptr), CheckpointError);
  on_ranks(3, [&](ProcessGroup& group) {
    EXPECT_EQ(own_number(own_state(of_two, &group)),
              group.rank() % 2);  // the third rank resumes with the state of the first
    EXPECT_EQ(has_own_state(of_two, &group), group.rank() < 2);
    EXPECT_THROW(own_state(inside, &group), CheckpointError);
  });
}

// They belong to the shards: the rank that has a shard continues its random numbers.
TEST(RankStates, KeepRandomStatesOfShardsOutOfRankStates) {
  on_ranks(2, [&](ProcessGroup& group) {
    StateDict own = state_of(group.rank(), "0");
    own.tensors.emplace_back(std::string(saved_keys::kGradientShards) + std::to_string(group.rank()),
                             at::full({1}, group.rank()));
    const StateDict all = gather_state(own, group);
    for (const StateDict& state : {all, own_state(all, &group), own_state(all, nullptr)}) {
      std::int64_t num_found = 0;
      for (const auto& [name, tensor] : state.tensors)
        if (name.starts_with(saved_keys::kGradientShards)) {
          ++num_found;
          EXPECT_EQ(name, saved_keys::kGradientShards + std::to_string(tensor.item<std::int64_t>()));
        }
      EXPECT_EQ(num_found, 2) << group.rank();
    }
  });
}

TEST(RankStates, RefuseAnInvalidNumberOfProcesses) {
  for (const std::string processes : {"two", "", "0", "-3", "99999999999999999999"}) {
    StateDict saved = state_of(0, "0");
    saved.metadata["processes"] = processes;
    EXPECT_NE(
        error_text<CheckpointError>([&] { own_state(saved, nullptr); }).find("'processes': '" + processes),
        std::string::npos);
    on_ranks(2, [&](ProcessGroup& group) { EXPECT_THROW(has_own_state(saved, &group), CheckpointError); });
  }
}

// Otherwise the state of each rank would be searched for in turn.
TEST(RankStates, RefuseMoreRanksThanTheFileHas) {
  StateDict of_two;
  on_ranks(2, [&](ProcessGroup& group) {
    const StateDict all = gather_state(state_of(group.rank(), "0"), group);
    if (group.rank() == 0) of_two = all;
  });
  for (const std::string processes : {"3", "9223372036854775807"}) {
    of_two.metadata["processes"] = processes;
    EXPECT_NE(error_text<CheckpointError>([&] { own_state(of_two, nullptr); }).find("from 1 to 2"),
              std::string::npos);
  }
}

}  // namespace
}  // namespace kindling
