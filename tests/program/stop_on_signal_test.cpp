#include "program/stop_on_signal.h"

#include <gtest/gtest.h>

#include <csignal>

namespace kindling {
namespace {

TEST(StopOnSignal, ExitsAsShellsCountSignals) {
  for (const auto& [signal, exit_code] : {std::pair{SIGINT, 130}, {SIGTERM, 143}}) {
    const StopToken token;
    const StopOnSignal stop(token);
    std::raise(signal);
    EXPECT_TRUE(token.stop_requested());
    EXPECT_EQ(stop.signal(), signal);
    EXPECT_EQ(stop.exit_code(), exit_code);
  }
}

TEST(StopOnSignal, ExitsWithoutAnErrorWhenNoSignalCame) {
  StopToken token;
  const StopOnSignal stop(token);
  token.request_stop();
  EXPECT_EQ(stop.exit_code(), 0);
}

}  // namespace
}  // namespace kindling
