#include "distributed/blocked_pipe_signal.h"

#include <pthread.h>

#include <cerrno>
#include <ctime>

namespace kindling {
namespace {

sigset_t pipe_signal() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGPIPE);
  return set;
}

bool is_pending() {
  sigset_t pending;
  sigpending(&pending);
  return sigismember(&pending, SIGPIPE) == 1;
}

}  // namespace

BlockedPipeSignal::BlockedPipeSignal() : was_pending_(is_pending()) {
  const sigset_t pipe = pipe_signal();
  pthread_sigmask(SIG_BLOCK, &pipe, &before_);
}

BlockedPipeSignal::~BlockedPipeSignal() {
  const int error = errno;
  // The signal of a write in between would be delivered as soon as it is unblocked, so it is taken back.
  if (!was_pending_ && is_pending()) {
    const sigset_t pipe = pipe_signal();
    const timespec now{};
    while (sigtimedwait(&pipe, nullptr, &now) < 0 && errno == EINTR) {
    }
  }
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  errno = error;
}

}  // namespace kindling
