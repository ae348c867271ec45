#include "kindling/launch/local_launch.h"

#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <optional>
#include <system_error>

#include "kindling/base/error.h"
#include "kindling/base/log.h"
#include "kindling/base/number_text.h"
#include "launch/child_process.h"
#include "launch/forwarded_signals.h"

namespace kindling {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::int64_t kMaxProcesses = 1024;
constexpr double kMaxGrace_s = 86400;
// Of a process that has lost others, as of most errors: another code tells more.
constexpr int kLostOthers = 1;

// A folder that only this user can enter, and that is gone at the end.
class PrivateFolder {
 public:
  PrivateFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "kindling-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr)
      throw Error({.place = name,
                   .found = "the folder cannot be made: " + std::generic_category().message(errno),
                   .remedy = "set TMPDIR to a folder that can be written"});
    path_ = name;
  }
  ~PrivateFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  PrivateFolder(const PrivateFolder&) = delete;
  PrivateFolder& operator=(const PrivateFolder&) = delete;
  std::filesystem::path operator/(const char* name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

void require_usable(const LocalLaunch& launch) {
  if (launch.command.empty())
    throw ConfigError({.place = "LocalLaunch::command", .found = "it is empty", .wanted = "a program"});
  if (launch.num_processes < 1 || launch.num_processes > kMaxProcesses)
    throw ConfigError({.place = "LocalLaunch::num_processes",
                       .found = "it is " + std::to_string(launch.num_processes),
                       .wanted = "1 to " + std::to_string(kMaxProcesses)});
  if (!(launch.grace_s >= 0 && launch.grace_s <= kMaxGrace_s))
    throw ConfigError({.place = "LocalLaunch::grace_s",
                       .found = "it is " + number_text(launch.grace_s),
                       .wanted = "0 to " + number_text(kMaxGrace_s)});
}

// The processes of a launch, from their start to their end.
class LocalProcesses {
 public:
  explicit LocalProcesses(const LocalLaunch& launch) : launch_(launch) {
    for (std::int64_t rank = 0; rank < launch.num_processes; ++rank)
      children_.emplace_back(
          ChildStart{.program = launch.program.empty() ? launch.command.front() : launch.program,
                     .command = launch.command,
                     .variables = variables_of(rank),
                     .has_input_and_output = rank == 0},
          signals_);
  }

  int run() {
    for (take_ends(); are_running(); take_ends()) {
      for (const int signal : signals_.wait(wait_ms())) forward(signal);
      press();
    }
    return failure_ ? failure_->exit_code : asked_exit_code_;
  }

 private:
  std::map<std::string, std::string> variables_of(std::int64_t rank) const {
    std::map<std::string, std::string> variables = launch_.variables;
    if (::getenv("OMP_NUM_THREADS") == nullptr) variables.emplace("OMP_NUM_THREADS", "1");
    variables["KINDLING_RANK"] = std::to_string(rank);
    variables["KINDLING_SIZE"] = std::to_string(launch_.num_processes);
    variables["KINDLING_STORE_FILE"] = (folder_ / "store").string();
    return variables;
  }

  bool are_running() const { return std::ranges::any_of(children_, &ChildProcess::is_running); }

  void forward(int signal) {
    asked_.push_back(signal);
    send(signal);
  }

  void send(int signal) const {
    for (const ChildProcess& child : children_) child.send(signal);
  }

  void take_ends() {
    for (std::size_t rank = 0; rank < children_.size(); ++rank) {
      const auto end = children_[rank].take_end();
      if (!end || end->exit_code == 0) continue;
      if (is_as_asked(*end))
        asked_exit_code_ = end->exit_code;
      else
        fail(rank, *end);
    }
  }

  bool is_as_asked(const ProcessEnd& end) const {
    return end.signal == 0 && std::ranges::find(asked_, end.exit_code - 128) != asked_.end();
  }

  void fail(std::size_t rank, const ProcessEnd& end) {
    if (is_asked_to_leave_) return;  // it had no choice
    if (failure_ && (failure_->exit_code != kLostOthers || end.exit_code == kLostOthers)) return;
    if (!failure_) next_press_ = Clock::now() + grace();
    failure_ = end;
    std::string text = "process " + std::to_string(rank) + " of " + std::to_string(children_.size()) +
                       (end.signal != 0 ? " was ended by signal " + std::to_string(end.signal) + " (" +
                                              ::strsignal(end.signal) + ")"
                                        : " has ended with exit code " + std::to_string(end.exit_code));
    if (are_running()) text += "; the others have " + short_text(launch_.grace_s, 3) + " s to leave";
    log_error(text);
  }

  // Once one has failed: the others are asked to leave, and then made to.
  void press() {
    if (!next_press_ || Clock::now() < *next_press_) return;
    send(is_asked_to_leave_ ? SIGKILL : SIGTERM);
    next_press_.reset();
    if (!is_asked_to_leave_) next_press_ = Clock::now() + grace();
    is_asked_to_leave_ = true;
  }

  Clock::duration grace() const {
    return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(launch_.grace_s));
  }

  // Until it is time to press; -1: as long as it takes.
  int wait_ms() const {
    if (!next_press_) return -1;
    const auto rest = std::chrono::ceil<std::chrono::milliseconds>(*next_press_ - Clock::now());
    return static_cast<int>(std::max<std::int64_t>(rest.count(), 0));
  }

  const LocalLaunch& launch_;
  const PrivateFolder folder_;
  ForwardedSignals signals_;
  std::vector<ChildProcess> children_;  // killed before the signals and the folder are given back
  std::vector<int> asked_;              // signals that were passed on
  int asked_exit_code_ = 0;             // of processes that have ended because of them
  std::optional<ProcessEnd> failure_;
  std::optional<Clock::time_point> next_press_;
  bool is_asked_to_leave_ = false;
};

}  // namespace

int run_local_processes(const LocalLaunch& launch) {
  require_usable(launch);
  return LocalProcesses(launch).run();
}

}  // namespace kindling
