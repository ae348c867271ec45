#include "kindling/launch/local_launch.h"

#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <csignal>
#include <optional>

#include "base/temporary_folder.h"
#include "kindling/base/error.h"
#include "kindling/base/log.h"
#include "kindling/base/number_text.h"
#include "launch/child_process.h"
#include "launch/forwarded_signals.h"

namespace kindling {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::int64_t kMaxProcesses = 1024;
constexpr int kUsr1Poll_ms = 100;  // until processes catch it
constexpr double kMaxGrace_s = 86400, kMaxEndTimeout_s = 1e9;
// The exit code of a process that has lost others, as of most errors: other codes are more specific.
constexpr int kLostOthers = 1;

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
  if (!(launch.end_timeout_s >= 0 && launch.end_timeout_s <= kMaxEndTimeout_s))
    throw ConfigError({.place = "LocalLaunch::end_timeout_s",
                       .found = "it is " + number_text(launch.end_timeout_s),
                       .wanted = "0 to " + number_text(kMaxEndTimeout_s)});
  if (launch.max_restarts < 0)
    throw ConfigError({.place = "LocalLaunch::max_restarts",
                       .found = "it is " + std::to_string(launch.max_restarts),
                       .wanted = "0 or more"});
}

// The parts that all starts of a launch share.
struct Common {
  const LocalLaunch& launch;
  const TemporaryFolder folder{};
  ForwardedSignals signals{};
  std::vector<int> forwarded{};  // signals that were forwarded
};

// A start, counted from 0, and the reason why the previous one ended.
struct Start {
  std::int64_t number = 0;
  std::string reason{};
};

// The processes of a start, until they end.
class LocalProcesses {
 public:
  LocalProcesses(Common& common, Start start)
      : common_(common), launch_(common.launch), start_(std::move(start)) {
    for (std::int64_t rank = 0; rank < launch_.num_processes; ++rank)
      children_.emplace_back(
          ChildStart{.program = launch_.program.empty() ? launch_.command.front() : launch_.program,
                     .command = launch_.command,
                     .variables = variables_of(rank),
                     .has_input_and_output = rank == 0},
          common_.signals);
    awaits_usr1_.resize(children_.size());
  }

  int run() {
    for (take_ends(); are_running(); take_ends()) {
      for (const int signal : common_.signals.wait(wait_ms())) forward(signal);
      send_usr1();
      give_up_late_processes();
      escalate();
    }
    for (const int signal : common_.signals.wait(0)) forward(signal);  // that have come with the last end
    // Ranks that end at a second signal leave the others without a partner.
    const bool is_after_stop = failure_ && failure_->exit_code == kLostOthers && forwarded_exit_code_ != 0;
    if (failure_ && !is_after_stop) return failure_->exit_code;
    return forwarded_exit_code_ != 0 ? forwarded_exit_code_ : completed_exit_code_;
  }

  // Returns why they have ended, if a restart may help.
  std::optional<std::string> passing_failure() const {
    const bool is_to_stop =
        std::ranges::any_of(common_.forwarded, [](int signal) { return signal != SIGUSR1; });
    if (!failure_ || is_to_stop) return std::nullopt;
    const auto& codes = launch_.final_exit_codes;
    const bool is_final =
        failure_->signal == 0 && std::ranges::find(codes, failure_->exit_code) != codes.end();
    return is_final ? std::nullopt : std::optional(failure_text_);
  }

 private:
  std::map<std::string, std::string> variables_of(std::int64_t rank) const {
    std::map<std::string, std::string> variables = launch_.variables;
    if (::getenv("OMP_NUM_THREADS") == nullptr) variables.emplace("OMP_NUM_THREADS", "1");
    variables["KINDLING_RANK"] = std::to_string(rank);
    variables["KINDLING_SIZE"] = std::to_string(launch_.num_processes);
    // A store cannot be used after it has lost a process.
    const std::string suffix = start_.number == 0 ? "" : std::to_string(start_.number);
    variables["KINDLING_STORE_FILE"] = (common_.folder / ("store" + suffix).c_str()).string();
    variables["KINDLING_RESTART_COUNT"] = std::to_string(start_.number);
    variables["KINDLING_RESTART_REASON"] = start_.reason;
    return variables;
  }

  bool are_running() const { return std::ranges::any_of(children_, &ChildProcess::is_running); }

  void forward(int signal) {
    common_.forwarded.push_back(signal);
    if (signal == SIGUSR1)
      awaits_usr1_.assign(children_.size(), true);
    else
      send(signal);
  }

  void send(int signal) const {
    for (const ChildProcess& child : children_) child.send(signal);
  }

  // A process that does not catch it yet would be ended by it, or lose it.
  void send_usr1() {
    for (std::size_t rank = 0; rank < children_.size(); ++rank) {
      if (!awaits_usr1_[rank] || !children_[rank].is_running() || !children_[rank].catches(SIGUSR1)) continue;
      awaits_usr1_[rank] = false;
      children_[rank].send(SIGUSR1);
    }
  }

  void take_ends() {
    for (std::size_t rank = 0; rank < children_.size(); ++rank) {
      const auto end = children_[rank].take_end();
      if (!end) continue;
      if (has_completed(*end)) {
        note_success();
        completed_exit_code_ = std::max(completed_exit_code_, end->exit_code);
      } else if (ended_as_requested(*end)) {
        forwarded_exit_code_ = end->exit_code;
      } else {
        fail(rank, *end);
      }
    }
  }

  bool has_completed(const ProcessEnd& end) const {
    const auto& codes = launch_.completed_exit_codes;
    return end.exit_code == 0 || (end.signal == 0 && std::ranges::find(codes, end.exit_code) != codes.end());
  }

  bool ended_as_requested(const ProcessEnd& end) const {
    const auto& forwarded = common_.forwarded;
    return end.signal == 0 && std::ranges::find(forwarded, end.exit_code - 128) != forwarded.end();
  }

  void fail(std::size_t rank, const ProcessEnd& end) {
    if (has_requested_end_) return;  // it was asked to end
    if (failure_ && (failure_->exit_code != kLostOthers || end.exit_code == kLostOthers)) return;
    if (!failure_) next_escalation_ = Clock::now() + grace();
    failure_ = end;
    failure_text_ =
        name_of(rank) + (end.signal != 0 ? " was ended by signal " + std::to_string(end.signal) + " (" +
                                               ::strsignal(end.signal) + ")"
                                         : " has ended with exit code " + std::to_string(end.exit_code));
    log_error(failure_text_ +
              (are_running() ? "; the others have " + short_text(launch_.grace_s, 3) + " s to exit" : ""));
  }

  std::string name_of(std::size_t rank) const {
    return "process " + std::to_string(rank) + " of " + std::to_string(children_.size());
  }

  void note_success() {
    if (launch_.end_timeout_s > 0 && !late_from_) late_from_ = Clock::now() + seconds(launch_.end_timeout_s);
  }

  // Such as a process that was stopped when the others no longer needed it.
  void give_up_late_processes() {
    if (!late_from_ || failure_ || Clock::now() < *late_from_) return;
    const auto late = std::ranges::find_if(children_, &ChildProcess::is_running);
    if (late == children_.end()) return;
    failure_ = ProcessEnd{.exit_code = kLostOthers};
    failure_text_ = name_of(static_cast<std::size_t>(late - children_.begin())) + " is still running " +
                    short_text(launch_.end_timeout_s, 3) + " s after another one ended";
    log_error(failure_text_);
    next_escalation_ = Clock::now();
  }

  // After a failure: asks the others to end, and later kills them.
  void escalate() {
    if (!next_escalation_ || Clock::now() < *next_escalation_) return;
    send(has_requested_end_ ? SIGKILL : SIGTERM);
    next_escalation_.reset();
    if (!has_requested_end_) next_escalation_ = Clock::now() + grace();
    has_requested_end_ = true;
  }

  static Clock::duration seconds(double number) {
    return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(number));
  }
  Clock::duration grace() const { return seconds(launch_.grace_s); }

  // Milliseconds until the next action; -1: no limit.
  int wait_ms() const {
    if (std::ranges::find(awaits_usr1_, true) != awaits_usr1_.end()) return kUsr1Poll_ms;
    const auto until = next_escalation_ ? next_escalation_ : failure_ ? std::nullopt : late_from_;
    if (!until) return -1;
    const auto rest = std::chrono::ceil<std::chrono::milliseconds>(*until - Clock::now());
    return static_cast<int>(std::clamp<std::int64_t>(rest.count(), 0, 86'400'000));
  }

  Common& common_;
  const LocalLaunch& launch_;
  const Start start_;
  std::vector<ChildProcess> children_;
  std::vector<bool> awaits_usr1_;  // by rank
  int forwarded_exit_code_ = 0;    // of processes that have ended because of signals that were passed on
  int completed_exit_code_ = 0;    // of completed_exit_codes
  std::optional<ProcessEnd> failure_;
  std::string failure_text_;
  std::optional<Clock::time_point> next_escalation_, late_from_;
  bool has_requested_end_ = false;
};

}  // namespace

int run_local_processes(const LocalLaunch& launch) {
  require_usable(launch);
  Common common{.launch = launch};
  for (Start start;;) {
    LocalProcesses processes(common, start);
    const int exit_code = processes.run();
    const auto failure = processes.passing_failure();
    if (!failure || start.number == launch.max_restarts) return exit_code;
    ++start.number;
    start.reason = *failure;
    log_error("restart " + std::to_string(start.number) + " of " + std::to_string(launch.max_restarts) +
              ", because " + *failure);
  }
}

}  // namespace kindling
