#include "launch/stop_signals.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <map>
#include <string>

namespace kindling {
namespace {

using enum StopSignals::Meaning;

constexpr pid_t kParent = 100, kOther = 200;

siginfo_t sent(int signal, pid_t by) {
  siginfo_t info{};
  info.si_signo = signal;
  info.si_code = SI_USER;
  info.si_pid = by;
  return info;
}

siginfo_t typed() {
  siginfo_t info{};
  info.si_signo = SIGINT;
  info.si_code = SI_KERNEL;
  return info;
}

class StopSignalsTest : public testing::Test {
 protected:
  ~StopSignalsTest() override {
    for (const auto& [name, value] : variables_) ::unsetenv(name.c_str());
  }
  void start(std::map<std::string, std::string> variables = {}) {
    variables_ = std::move(variables);
    for (const auto& [name, value] : variables_) ::setenv(name.c_str(), value.c_str(), 1);
    signals_.reset();
  }
  void start_below(pid_t parent) { start({{kParentVariable, std::to_string(parent)}}); }

  StopSignals signals_;

 private:
  std::map<std::string, std::string> variables_;
};

// SLURM sends TERM, CONT, TERM at a time limit; systemd may send HUP right after TERM.
TEST_F(StopSignalsTest, TakeSignalsWithinThreeSecondsAsOne) {
  start();
  EXPECT_EQ(signals_.take(sent(SIGTERM, kOther), 5000), stop);
  EXPECT_EQ(signals_.take(sent(SIGTERM, kOther), 5004), repetition);
  EXPECT_EQ(signals_.take(sent(SIGHUP, kParent), 5100), repetition);
  EXPECT_EQ(signals_.take(sent(SIGTERM, kOther), 8000), repetition);
  EXPECT_EQ(signals_.take(sent(SIGTERM, kOther), 8001), end_now);
  signals_.forget();
  EXPECT_EQ(signals_.take(sent(SIGTERM, kOther), 8002), stop);
}

TEST_F(StopSignalsTest, EndAtTheSecondInterruptFromATerminal) {
  start();
  EXPECT_EQ(signals_.take(typed(), 0), stop);
  EXPECT_EQ(signals_.take(sent(SIGINT, kOther), 10), repetition);
  EXPECT_EQ(signals_.take(typed(), 200), end_now);
}

// MPICH's launcher forwards what the terminal has sent to the ranks, too.
TEST_F(StopSignalsTest, TakeTheTerminalsInterruptOnceBelowALauncher) {
  start({{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", "29500"}});
  EXPECT_EQ(signals_.take(typed(), 0), stop);
  EXPECT_EQ(signals_.take(typed(), 200), repetition);
  EXPECT_EQ(signals_.take(sent(SIGINT, kOther), 300), repetition);
  EXPECT_EQ(signals_.take(typed(), 3001), end_now);
}

// It has sorted out the repetitions.
TEST_F(StopSignalsTest, ObeyEachSignalOfTheParent) {
  start_below(kParent);
  EXPECT_EQ(signals_.take(sent(SIGINT, kParent), 0), stop);
  EXPECT_EQ(signals_.take(sent(SIGINT, kOther), 10), repetition);
  EXPECT_EQ(signals_.take(sent(SIGINT, kParent), 100), end_now);
}

// scancel signals the launcher and its ranks.
TEST_F(StopSignalsTest, TakeTheParentsSignalAsARepetitionOfAnothers) {
  start_below(kParent);
  EXPECT_EQ(signals_.take(sent(SIGTERM, kOther), 0), stop);
  EXPECT_EQ(signals_.take(sent(SIGTERM, kParent), 4), repetition);
  EXPECT_EQ(signals_.take(sent(SIGTERM, kOther), 5), repetition);
  EXPECT_EQ(signals_.take(sent(SIGTERM, kParent), 500), end_now);
}

TEST_F(StopSignalsTest, LeaveTheTerminalToTheParent) {
  start_below(::getppid());
  EXPECT_EQ(signals_.take(typed(), 0), repetition);
  EXPECT_EQ(signals_.take(sent(SIGINT, ::getppid()), 1), stop);
  EXPECT_EQ(signals_.take(typed(), 200), repetition);
  EXPECT_EQ(signals_.take(sent(SIGINT, ::getppid()), 201), end_now);
}

// A program that a rank has started, such as a shell, inherits the variable.
TEST_F(StopSignalsTest, ObeyTheTerminalBelowAParentThatHasOnlySetTheVariable) {
  start_below(kParent);
  EXPECT_EQ(signals_.take(typed(), 0), stop);
  EXPECT_EQ(signals_.take(typed(), 200), end_now);
}

}  // namespace
}  // namespace kindling
