#include "distributed/blocked_pipe_signal.h"

#include <gtest/gtest.h>
#include <pthread.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <thread>

namespace kindling {
namespace {

// The error of a write to a pipe that nobody reads.
int write_error() {
  std::array<int, 2> ends{};
  EXPECT_EQ(::pipe(ends.data()), 0);
  ::close(ends[0]);
  const ssize_t written = ::write(ends[1], "x", 1);
  const int error = written < 0 ? errno : 0;
  ::close(ends[1]);
  return error;
}

bool is_blocked() {
  sigset_t mask;
  pthread_sigmask(SIG_BLOCK, nullptr, &mask);
  return sigismember(&mask, SIGPIPE) == 1;
}

bool is_pending() {
  sigset_t pending;
  sigpending(&pending);
  return sigismember(&pending, SIGPIPE) == 1;
}

TEST(BlockedPipeSignal, LetsWritesFailInsteadOfEndingTheProcess) {
  struct sigaction before {
  }, standard{};
  standard.sa_handler = SIG_DFL;
  ::sigaction(SIGPIPE, &standard, &before);
  {
    const BlockedPipeSignal block;
    EXPECT_EQ(write_error(), EPIPE);
    std::thread([] { EXPECT_EQ(write_error(), EPIPE); }).join();  // of a thread that is started meanwhile
    const BlockedPipeSignal inner;
    EXPECT_EQ(write_error(), EPIPE);
  }
  EXPECT_FALSE(is_blocked());
  EXPECT_FALSE(is_pending());
  ::sigaction(SIGPIPE, &before, nullptr);
}

TEST(BlockedPipeSignal, KeepsASignalThatWasPending) {
  std::thread([] {  // whose mask and signals end with it
    sigset_t pipe;
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe, nullptr);
    {
      const BlockedPipeSignal block;
      EXPECT_EQ(write_error(), EPIPE);
    }
    EXPECT_FALSE(is_pending());
    EXPECT_TRUE(is_blocked());
    pthread_kill(pthread_self(), SIGPIPE);
    { const BlockedPipeSignal block; }
    EXPECT_TRUE(is_pending());
  })
      .join();
}

}  // namespace
}  // namespace kindling
