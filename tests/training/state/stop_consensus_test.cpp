#include "training/state/stop_consensus.h"

#include <gtest/gtest.h>

#include "support/rank_threads.h"

namespace kindling {
namespace {

TEST(StopConsensus, StopsAllRanksWhenOneVotesTo) {
  on_ranks(3, [](ProcessGroup& group) {
    StopConsensus stop{StopToken(), &group};
    stop.vote_now();
    EXPECT_FALSE(stop.stop_requested());
    if (group.rank() == 1) stop.request_stop(FitReason::early_stop);
    EXPECT_FALSE(stop.stop_requested());  // so far it is only this rank's vote
    stop.vote_now();
    EXPECT_EQ(stop.reason(), FitReason::early_stop);
    stop.reset();
    EXPECT_FALSE(stop.stop_requested());
    stop.vote_now();
    EXPECT_FALSE(stop.stop_requested());
  });
}

TEST(StopConsensus, PrefersDivergenceToOtherReasons) {
  on_ranks(2, [](ProcessGroup& group) {
    StopConsensus stop{StopToken(), &group};
    stop.request_stop(group.rank() == 0 ? FitReason::requested : FitReason::diverged);
    stop.vote_now();
    EXPECT_EQ(stop.reason(), FitReason::diverged);
  });
}

TEST(StopConsensus, IsImmediateInASingleProcess) {
  StopConsensus stop{StopToken(), nullptr};
  stop.request_stop(FitReason::time);
  EXPECT_EQ(stop.reason(), FitReason::time);
  EXPECT_EQ(stop.immediate(), &stop.token());
}

}  // namespace
}  // namespace kindling
