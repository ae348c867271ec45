#include "cli/run/launcher_watch.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>

#include "kindling/base/log.h"
#include "launch/parent_processes.h"

namespace kindling {
namespace {

// A file that can be read once the process has ended; -1 if the system has none (Linux before 5.3).
int file_of_process(std::int64_t process) {
  return static_cast<int>(::syscall(SYS_pidfd_open, static_cast<pid_t>(process), 0));
}

// Returns true once the launcher has ended, false once the event has come.
bool has_ended(int launcher, int event) {
  pollfd files[] = {{.fd = launcher, .events = POLLIN, .revents = 0},
                    {.fd = event, .events = POLLIN, .revents = 0}};
  while (::poll(files, 2, -1) < 0)
    if (errno != EINTR) return false;
  return files[1].revents == 0;
}

}  // namespace

LauncherWatch::LauncherWatch(const LaunchPlace& place, const StopOnSignal& signals) {
  if (!place || place->launcher != "torchrun") return;
  const std::int64_t torchrun = process_that_set("TORCHELASTIC_RUN_ID");
  if (torchrun == 0) return;
  launcher_ = file_of_process(torchrun);
  end_ = ::eventfd(0, EFD_CLOEXEC);
  if (launcher_ < 0 || end_ < 0) return;
  thread_ = std::thread([launcher = launcher_, end = end_, &signals] {
    if (!has_ended(launcher, end)) return;
    if (signals.signal() != 0) return;  // it stops already; a second signal would end it at once
    log_warning("torchrun has ended before its ranks: the run saves and stops");
    ::kill(::getpid(), SIGTERM);
  });
}

LauncherWatch::~LauncherWatch() {
  if (thread_.joinable()) {
    const std::uint64_t one = 1;
    if (::write(end_, &one, sizeof one) < 0) log_warning("the watch of the launcher does not end");
    thread_.join();
  }
  for (const int file : {launcher_, end_})
    if (file >= 0) ::close(file);
}

}  // namespace kindling
