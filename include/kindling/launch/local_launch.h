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
  std::string program{};               // its path; empty: the program's name is the path
  std::int64_t num_processes = 1;
  // Seconds that the other processes have to exit by themselves after one has failed; then they get SIGTERM,
  // and after the same time again SIGKILL.
  double grace_s = 2;
  // Seconds that the others have to end once one has ended with 0, or they have failed; 0: no limit.
  double end_timeout_s = 0;
  // Maximum number of restarts of all processes after one has failed and all have ended. There is no restart
  // after SIGINT, SIGTERM or SIGHUP, and none after one of these exit codes, with which a process would exit
  // again.
  std::int64_t max_restarts = 0;
  std::vector<int> final_exit_codes{};
  // Exit codes of processes that have completed their work, like 0.
  std::vector<int> completed_exit_codes{};
  std::map<std::string, std::string> variables{};  // extra environment variables, in addition to those below
};

// Starts the processes, waits for all of them, and returns the exit status for a shell: 0 if all have ended
// with 0, otherwise that of the first one that failed, or 128 + the signal if a signal has ended it. Without
// a failure, one of completed_exit_codes if a process has ended with it. Processes also exit with 1 after
// losing another one, so other exit codes take precedence over 1. With restarts, the last start counts.
//
// Each process finds in its environment KINDLING_RANK, KINDLING_SIZE and KINDLING_STORE_FILE: a file that
// does not exist yet, in a directory that only this user can enter, that all starts share and that is removed
// at the end. KINDLING_RESTART_COUNT, and from the first restart on KINDLING_RESTART_REASON, say what ended
// the previous start. launch_environment() reads them. OMP_NUM_THREADS is 1 unless it is set. Rank 0 has this
// process's standard input (none if that is a terminal) and output; the others have neither, and all share
// its standard error.
//
// Meanwhile SIGINT, SIGTERM, SIGHUP and SIGUSR1 of this process are forwarded to each of them once, as each
// is in a separate process group; a process that then ends with 128 + that signal has not failed. A SIGHUP
// that this process ignores (nohup) is not forwarded; SIGUSR1 reaches a process once it has a handler for it.
// These signals are unblocked meanwhile. Handlers and the signal mask are restored at the end. No process
// outlives the calling thread, however it ends. Failures are logged to the app log.
//
// Throws ConfigError for options out of range, and Error if processes cannot be started (those already
// started are killed) or while another such call is active in this process.
KINDLING_API int run_local_processes(const LocalLaunch& launch);

}  // namespace kindling
