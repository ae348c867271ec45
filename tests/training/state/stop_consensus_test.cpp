#include "training/agreed_stop.h"

#include <gtest/gtest.h>

#include "support/rank_threads.h"

namespace kindling {
namespace {

TEST(AgreedStop, IsWhatOneOfThemWishes) {
  on_ranks(3, [](ProcessGroup& group) {
    AgreedStop stop{StopToken(), &group};
    stop.ask_all();
    EXPECT_FALSE(stop.stop_requested());
    if (group.rank() == 1) stop.request_stop(FitReason::early_stop);
    EXPECT_FALSE(stop.stop_requested());  // it is only wished
    stop.ask_all();
    EXPECT_EQ(stop.reason(), FitReason::early_stop);
    stop.reset();
    EXPECT_FALSE(stop.stop_requested());
    stop.ask_all();
    EXPECT_FALSE(stop.stop_requested());
  });
}

TEST(AgreedStop, ThatItHasDivergedCountsBeforeAllElse) {
  on_ranks(2, [](ProcessGroup& group) {
    AgreedStop stop{StopToken(), &group};
    stop.request_stop(group.rank() == 0 ? FitReason::requested : FitReason::diverged);
    stop.ask_all();
    EXPECT_EQ(stop.reason(), FitReason::diverged);
  });
}

TEST(AgreedStop, OfAProcessAloneIsItsOwn) {
  AgreedStop stop{StopToken(), nullptr};
  stop.request_stop(FitReason::time);
  EXPECT_EQ(stop.reason(), FitReason::time);
  EXPECT_EQ(stop.at_once(), &stop.token());
}

}  // namespace
}  // namespace kindling
