#include "cli/run/stop_on_signal.h"

#include <gtest/gtest.h>
#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <functional>
#include <vector>

namespace kindling {
namespace {

auto handler_of(int signal) {
  struct sigaction now {};
  sigaction(signal, nullptr, &now);
  return now.sa_handler;
}

TEST(StopOnSignal, ExitsAsShellsCountSignals) {
  for (const auto& [signal, exit_code] : {std::pair{SIGINT, 130}, {SIGTERM, 143}, {SIGHUP, 129}}) {
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

TEST(StopOnSignal, SaveRequestsDoNotStopAndAreHarmlessBeforeAFit) {
  const StopToken token;
  StopOnSignal stop;
  std::raise(SIGUSR1);  // without a handler the end of the process
  stop.watch(token, std::make_shared<ModelCheckpoint>());
  std::raise(SIGUSR1);
  EXPECT_FALSE(token.stop_requested());
  EXPECT_EQ(stop.signal(), 0);
}

// SIGUSR1 stops also if it came before the fit has read its config. Another signal takes its place.
TEST(StopOnSignal, StopsAtUsr1IfRequested) {
  for (const bool comes_before : {true, false}) {
    const StopToken token;
    StopOnSignal stop;
    if (comes_before) std::raise(SIGUSR1);
    stop.stop_on_usr1();
    stop.watch(token, std::make_shared<ModelCheckpoint>());
    if (!comes_before) std::raise(SIGUSR1);
    EXPECT_TRUE(token.stop_requested());
    EXPECT_EQ(stop.exit_code(), 138);
    std::raise(SIGTERM);
    std::raise(SIGUSR1);
    EXPECT_EQ(stop.exit_code(), 143);
  }
}

TEST(StopOnSignal, StopsTheNextTrainingToo) {
  const std::vector<int> signals{SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGPIPE, SIGXFSZ};
  std::vector<sighandler_t> before;  // a fit that has finished in this process leaves its handlers
  for (const int signal : signals) before.push_back(handler_of(signal));
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
  for (std::size_t i = 0; i < signals.size(); ++i) EXPECT_EQ(handler_of(signals[i]), before[i]) << signals[i];
}

TEST(StopOnSignal, PassesADeferredStopToTheFirstTraining) {
  const StopToken token;
  StopOnSignal stop;
  stop.defer_stops();
  std::raise(SIGTERM);
  EXPECT_EQ(stop.exit_code(), 143);
  stop.watch(token, std::make_shared<ModelCheckpoint>());
  EXPECT_TRUE(token.stop_requested());
}

TEST(StopOnSignal, LeavesAnIgnoredHangupIgnored) {
  std::signal(SIGHUP, SIG_IGN);
  {
    const StopToken token;
    StopOnSignal stop;
    stop.watch(token, std::make_shared<ModelCheckpoint>());
    std::raise(SIGHUP);
    EXPECT_FALSE(token.stop_requested());
  }
  EXPECT_EQ(handler_of(SIGHUP), SIG_IGN);
  std::signal(SIGHUP, SIG_DFL);
}

TEST(StopOnSignal, MakesFailedWritesAnError) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  ::close(ends[0]);
  StopOnSignal stop;
  EXPECT_EQ(::write(ends[1], "x", 1), -1);  // without it SIGPIPE ends the process
  EXPECT_EQ(errno, EPIPE);
  ::close(ends[1]);
  std::raise(SIGXFSZ);
}

TEST(StopOnSignal, KeepsTheExitCodeOnceTheResultIsDurable) {
  const auto finish = [](int exit_code, std::vector<int> signals) {
    {
      StopOnSignal stop;
      stop.watch(StopToken(), std::make_shared<ModelCheckpoint>());
      stop.finish(exit_code);
      std::raise(SIGUSR1);
    }
    std::raise(SIGUSR1);
    for (const int signal : signals) std::raise(signal);
    std::_Exit(77);
  };
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    EXPECT_EXIT(finish(0, {signal}), testing::ExitedWithCode(77), "");
    EXPECT_EXIT(finish(130, {SIGTERM, signal}), testing::ExitedWithCode(77), "");
  }
}

// A process below a terminal, which counts the signals that it has handled.
class TypedTo {
 public:
  explicit TypedTo(const std::function<void(StopOnSignal&)>& prepare) {
    id_ = ::forkpty(&terminal_, nullptr, nullptr, nullptr);
    if (id_ == 0) run(prepare);
    await(1);
  }
  ~TypedTo() { ::close(terminal_); }
  void interrupt() const { ASSERT_EQ(::write(terminal_, "\x03", 1), 1); }
  void send(int signal) const { ::kill(id_, signal); }
  // Waits until so many more signals have been handled.
  void await(int number) const {
    for (char next = 0; number > 0 && ::read(terminal_, &next, 1) == 1;) number -= next == '.';
  }
  int wait() const {
    int status = 0;
    ::waitpid(id_, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

 private:
  [[noreturn]] static void run(const std::function<void(StopOnSignal&)>& prepare) {
    StopOnSignal stop;
    prepare(stop);
    sigset_t all, none;
    ::sigfillset(&all);
    ::sigemptyset(&none);
    ::pthread_sigmask(SIG_SETMASK, &all, nullptr);  // they come while it waits, not before
    while (::write(STDOUT_FILENO, ".", 1) == 1) ::sigsuspend(&none);
    std::_Exit(1);
  }

  int terminal_ = -1;
  pid_t id_ = -1;
};

TEST(StopOnSignal, EndsAtTheSecondInterruptFromATerminalNotAtRepetitions) {
  const TypedTo process(
      [](StopOnSignal& stop) { stop.watch(StopToken(), std::make_shared<ModelCheckpoint>()); });
  process.interrupt();
  process.await(1);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGTERM}) {
    process.send(signal);
    process.await(1);
  }
  process.interrupt();
  EXPECT_EQ(process.wait(), 130);
}

TEST(StopOnSignal, EndsWithTheCodeOfItsResultIfItHangsAfterThat) {
  const TypedTo process([](StopOnSignal& stop) {
    stop.watch(StopToken(), std::make_shared<ModelCheckpoint>());
    stop.finish(0);
  });
  process.interrupt();
  process.await(1);
  process.interrupt();
  EXPECT_EQ(process.wait(), 0);
}

}  // namespace
}  // namespace kindling
