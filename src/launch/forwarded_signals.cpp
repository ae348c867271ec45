#include "launch/forwarded_signals.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <system_error>

#include "base/system.h"
#include "kindling/base/error.h"
#include "launch/stop_signals.h"

namespace kindling {
namespace {

constexpr int kSignals[] = {SIGCHLD, SIGINT, SIGTERM, SIGHUP, SIGUSR1};

// The data that a handler may access. Signals go through a pipe, one byte each; a full pipe loses only
// repetitions.
std::atomic<int> write_end = -1;
static_assert(std::atomic<int>::is_always_lock_free);
StopSignals stop_signals;

extern "C" void note_signal(int signal, siginfo_t* info, void*) {
  const bool is_stop = signal != SIGCHLD && signal != SIGUSR1;
  if (is_stop && stop_signals.take(*info, steady_ms()) == StopSignals::Meaning::repetition) return;
  const int code = errno;
  const auto byte = static_cast<unsigned char>(signal);
  [[maybe_unused]] const auto written = ::write(write_end, &byte, 1);
  errno = code;
}

}  // namespace

ForwardedSignals::ForwardedSignals() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0)
    throw Error(
        {.place = "launch", .found = "cannot create a pipe: " + std::generic_category().message(errno)});
  int none = -1;
  if (!write_end.compare_exchange_strong(none, ends[1])) {
    for (const int end : ends) ::close(end);
    throw Error({.place = "launch",
                 .found = "this process has another launch running",
                 .wanted = "one launch at a time",
                 .remedy = "wait until it ends"});
  }
  read_end_ = ends[0];
  stop_signals.reset();
  struct sigaction action {};
  action.sa_sigaction = note_signal;
  action.sa_flags = SA_RESTART | SA_SIGINFO;
  sigset_t handled;
  ::sigemptyset(&handled);
  for (const int signal : kSignals) {
    if (signal == SIGHUP && is_ignored(signal)) continue;
    former_.push_back({signal, {}});
    ::sigaction(signal, &action, &former_.back().action);
    ::sigaddset(&handled, signal);
  }
  ::pthread_sigmask(SIG_UNBLOCK, &handled, &former_mask_);
}

ForwardedSignals::~ForwardedSignals() {
  ::pthread_sigmask(SIG_SETMASK, &former_mask_,
                    nullptr);  // first: what was blocked waits for its former handler
  for (const auto& [signal, action] : former_) ::sigaction(signal, &action, nullptr);
  ::close(read_end_);
  ::close(write_end.exchange(-1));
}

std::vector<int> ForwardedSignals::wait(int timeout_ms) {
  pollfd pipe{.fd = read_end_, .events = POLLIN, .revents = 0};
  ::poll(&pipe, 1, timeout_ms);
  std::vector<int> signals;
  for (unsigned char byte = 0; ::read(read_end_, &byte, 1) == 1;)
    if (byte != SIGCHLD) signals.push_back(byte);
  return signals;
}

void ForwardedSignals::forget_in_child() const noexcept {
  for (const auto& [signal, action] : former_) {
    ::signal(signal, SIG_IGN);  // drops those that wait
    ::signal(signal, SIG_DFL);
  }
}

BlockedSignals::BlockedSignals() noexcept {
  sigset_t all;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &former_);
}

}  // namespace kindling
