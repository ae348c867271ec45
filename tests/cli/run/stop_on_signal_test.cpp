#include "cli/run/stop_on_signal.h"

#include <gtest/gtest.h>

#include <csignal>

namespace kindling {
namespace {

TEST(StopOnSignal, ExitsAsShellsCountSignals) {
  for (const auto& [signal, exit_code] : {std::pair{SIGINT, 130}, {SIGTERM, 143}}) {
    const StopToken token;
    StopOnSignal stop;
    stop.watch(token, std::make_shared<ModelCheckpoint>());
    std::raise(signal);
    EXPECT_TRUE(token.stop_requested());
    EXPECT_EQ(stop.signal(), signal);
    EXPECT_EQ(stop.exit_code(), exit_code);
  }
}

TEST(StopOnSignal, ExitsWithoutAnErrorWhenNoSignalCame) {
  StopToken token;
  StopOnSignal stop;
  stop.watch(token, std::make_shared<ModelCheckpoint>());
  token.request_stop();
  EXPECT_EQ(stop.exit_code(), 0);
}

TEST(StopOnSignal, SavingIsNoStopAndDoesNoHarmBeforeAFit) {
  const StopToken token;
  StopOnSignal stop;
  std::raise(SIGUSR1);  // without a handler the end of the process
  stop.watch(token, std::make_shared<ModelCheckpoint>());
  std::raise(SIGUSR1);
  EXPECT_FALSE(token.stop_requested());
  EXPECT_EQ(stop.signal(), 0);
}

TEST(StopOnSignal, PassesItselfOnToTheNextTraining) {
  for (const bool comes_before : {true, false}) {
    const StopToken first, second;
    StopOnSignal stop;
    stop.watch(first, std::make_shared<ModelCheckpoint>());
    if (comes_before) std::raise(SIGINT);
    stop.watch(second, std::make_shared<ModelCheckpoint>());
    if (!comes_before) std::raise(SIGINT);
    EXPECT_EQ(first.stop_requested(), comes_before);
    EXPECT_TRUE(second.stop_requested());
  }
  struct sigaction now;
  sigaction(SIGINT, nullptr, &now);
  EXPECT_EQ(now.sa_handler, SIG_DFL);  // both leave what they found
}

TEST(StopOnSignal, LeavesAtOnceAtTheSecondOne) {
  const auto stop_twice = [](int first, int second) {
    StopOnSignal stop;
    stop.watch(StopToken(), std::make_shared<ModelCheckpoint>());
    std::raise(first);
    std::raise(second);
    std::_Exit(1);
  };
  EXPECT_EXIT(stop_twice(SIGINT, SIGINT), testing::ExitedWithCode(130), "");
  EXPECT_EXIT(stop_twice(SIGINT, SIGTERM), testing::ExitedWithCode(143), "");
}

}  // namespace
}  // namespace kindling
