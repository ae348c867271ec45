#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "kindling/base/export.h"

namespace kindling {

// Processes of one program that train together on this machine.
struct LocalLaunch {
  std::vector<std::string> command{};  // as main() gets it: the program's name and its arguments
  std::string program{};               // its path; empty: the name is one
  std::int64_t num_processes = 1;
  // When one has failed, the others have so long to leave by themselves; then they get SIGTERM, and after as
  // long again SIGKILL.
  double grace_s = 2;
  // Once one has ended with 0, the others have so long to end, and have failed then; 0: as long as it takes.
  double end_timeout_s = 0;
  // When one has failed and all have ended, all are started anew, at most so often. Not after SIGINT or
  // SIGTERM, and not where a process has left with one of these codes, with which it would leave again.
  std::int64_t max_restarts = 0;
  std::vector<int> final_exit_codes{};
  std::map<std::string, std::string> variables{};  // of their environment, beside those below
};

// Starts them, waits for all of them, and returns the exit status for a shell: 0 when all have ended with 0,
// else that of the first one that failed, 128 + the signal where a signal has ended it. 1, with which
// processes also leave when they have lost another one, gives way to what the others end with by themselves.
// Of several starts it is that of the last one.
//
// Each finds in its environment KINDLING_RANK, KINDLING_SIZE and KINDLING_STORE_FILE, a file that is still to
// be made, in a folder that only this user can enter, that all starts share and that is gone at the end;
// KINDLING_RESTART_COUNT, and from 1 on KINDLING_RESTART_REASON, what has ended the start before.
// launch_environment() reads them. OMP_NUM_THREADS is 1 unless it is set. Rank 0 has this process's standard
// input (none, when that is a terminal) and output; the others have neither, and all have its standard error.
//
// Meanwhile SIGINT, SIGTERM and SIGUSR1 of this process reach each of them once, as each is in a process
// group of its own; one that then ends by itself with 128 + that signal has not failed. The handlers of
// before are put back at the end. None outlives the thread that calls this, however it ends. The app log
// tells of failures.
//
// Throws ConfigError for options out of range, Error when processes cannot be started (those that were are
// killed), or while another such call is at work in this process.
KINDLING_API int run_local_processes(const LocalLaunch& launch);

}  // namespace kindling
