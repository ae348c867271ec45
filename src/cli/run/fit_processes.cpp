#include "cli/run/fit_processes.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "cli/config/exit_codes.h"
#include "cli/run/loaded_config.h"
#include "cli/run/resume_plan.h"
#include "kindling/base/error.h"
#include "kindling/base/file.h"
#include "kindling/base/log.h"
#include "kindling/base/number_text.h"
#include "kindling/device/device.h"
#include "kindling/launch/local_launch.h"

namespace kindling {
namespace {

constexpr const char* kContinues = "continues";

[[noreturn]] void refuse_search(const char* finder) {
  throw ConfigError(
      {.place = finder,
       .found = "searches run in a single process, but the config requests data-parallel training",
       .remedy = "search with one process (trainer.num_processes = 1 and num_gpus at most 1), and "
                 "write the result into the config"});
}

// Blocks them until this process ends. The launch unblocks them while it forwards them: so none is lost
// before the launch, and none changes the exit code after it.
void block_signals() {
  sigset_t signals;
  ::sigemptyset(&signals);
  for (const int signal : {SIGHUP, SIGINT, SIGTERM, SIGUSR1}) ::sigaddset(&signals, signal);
  ::pthread_sigmask(SIG_BLOCK, &signals, nullptr);
}

// Reports once that this rank waits, unless it ends before. Ranks above 0 log nothing but errors by then.
class WaitingReport {
 public:
  WaitingReport(const LaunchEnvironment& place, const DistributedOptions& options) {
    if (place.rank > 1) return;
    const double patience_s = std::min(10., options.timeout_s / 2);
    const std::string text = "rank " + std::to_string(place.rank) + " of " + std::to_string(place.size) +
                             " (" + place.launcher + ") still waits for " +
                             (place.rank == 0 ? "other ranks" : "rank 0") + " after " +
                             number_text(patience_s) + " s; all ranks must run this program, and it " +
                             "gives up after distributed.timeout_s = " + number_text(options.timeout_s);
    thread_ = std::thread([this, patience_s, text, is_first = place.rank == 0] {
      std::unique_lock lock(m_);
      if (cv_.wait_for(lock, std::chrono::duration<double>(patience_s), [this] { return is_over_; })) return;
      is_first ? log_warning(text) : log_error(text);
    });
  }
  ~WaitingReport() {
    {
      const std::lock_guard lock(m_);
      is_over_ = true;
    }
    cv_.notify_all();
    if (thread_.joinable()) thread_.join();
  }
  WaitingReport(const WaitingReport&) = delete;
  WaitingReport& operator=(const WaitingReport&) = delete;

 private:
  std::mutex m_;
  std::condition_variable cv_;
  bool is_over_ = false;
  std::thread thread_;
};

namespace fs = std::filesystem;

// In the directory of a launch by this program, which all its starts share; empty for other launchers.
fs::path note_of(const LaunchPlace& place) {
  return place && !place->store_file.empty() ? place->store_file.parent_path() / "run" : fs::path{};
}

}  // namespace

void require_num_processes(const std::optional<LaunchEnvironment>& place, const ConfigTables& config) {
  const std::int64_t number = config.trainer.options.num_processes;
  if (!place || number == 1 || number == place->size || number == place->local_size) return;
  throw ConfigError({.place = "trainer.num_processes",
                     .found = "it is " + std::to_string(number) + ", but according to " + place->launcher +
                              " there are " + std::to_string(place->size) + " processes",
                     .wanted = "the same number, or 1",
                     .remedy = "omit it when a launcher starts the processes"});
}

std::int64_t num_to_start(ProcessRequest request, std::int64_t num_available) {
  if (request.num_processes > 1) return request.num_processes;
  const std::int64_t usable =
      request.num_gpus < 0 ? num_available : std::min(request.num_gpus, num_available);
  return std::max<std::int64_t>(usable, 1);
}

std::int64_t num_processes(const std::optional<LaunchEnvironment>& place, const RunConfig& config) {
  if (place) return place->size;
  const ProcessRequest request{.num_gpus = config.num_gpus(),
                               .num_processes = config.trainer.options.num_processes};
  return num_to_start(request, request.num_gpus != 0 ? num_gpus() : 0);
}

void require_no_search(const std::optional<LaunchEnvironment>& place, const RunConfig& config) {
  if (num_processes(place, config) == 1) return;
  if (config.batch_finder.is_on) refuse_search("batch_finder");
  if (config.lr_finder.is_on) refuse_search("lr_finder");
}

int launch_fit(const CommandContext& context, std::int64_t num_processes, const ConfigTables& config,
               const StopOnSignal& signals) {
  // A restart would not help: errors in the config or data remain, a diverged run diverges again, and a run
  // stopped by a signal was meant to stop, even if the signal reached only one rank.
  const std::vector<int> final_exit_codes{kConfigErrorCode, kDataErrorCode, kDivergedCode, 128 + SIGHUP,
                                          128 + SIGINT,     128 + SIGTERM,  128 + SIGUSR1};
  block_signals();
  if (signals.signal() != 0) std::raise(signals.signal());  // a request that came before, for the ranks
  const int exit_code =
      run_local_processes({.command = {context.argv, context.argv + context.argc},
                           .program = "/proc/self/exe",
                           .num_processes = num_processes,
                           .grace_s = 1.5,
                           .end_timeout_s = std::min(config.distributed.timeout_s, 1e9),
                           .max_restarts = config.restarts.max_restarts,
                           .final_exit_codes = final_exit_codes,
                           .completed_exit_codes = {kRequeueRefusedCode, kOutputLostInRankCode}});
  return exit_code == kOutputLostInRankCode ? kFailureCode : exit_code;
}

int launch_ranks(const CommandContext& context, std::int64_t num_processes, double end_timeout_s) {
  block_signals();
  return run_local_processes({.command = {context.argv, context.argv + context.argc},
                              .program = "/proc/self/exe",
                              .num_processes = num_processes,
                              .grace_s = 1.5,
                              .end_timeout_s = std::min(end_timeout_s, 1e9)});
}

void warn_unused_restarts(const std::optional<LaunchEnvironment>& place, const ConfigTables& config) {
  if (config.restarts.max_restarts == 0 || (place && !place->store_file.empty())) return;
  log_warning("distributed.max_restarts has no effect: " +
              (place ? "the launcher (" + place->launcher + ") decides whether to restart processes"
                     : "a single process is not restarted"));
}

Group join_ranks(const LaunchEnvironment& place, const DistributedOptions& options) {
  const WaitingReport report(place, options);
  return ProcessGroup::join(place, options);
}

std::string broadcast_text(const Group& group, const std::string& text) {
  return group ? group->all_gather(text).front() : text;
}

int largest(const Group& group, int number) {
  if (!group) return number;
  for (const std::string& text : group->all_gather(std::to_string(number)))
    number = std::max(number, std::stoi(text));
  return number;
}

SoloWork::SoloWork(Group group, double interval_s) : group_(std::move(group)), interval_(interval_s) {}

void SoloWork::keep_waiting() {
  if (!group_ || Clock::now() - last_ < interval_) return;
  group_->all_gather(kContinues);
  last_ = Clock::now();
}

int SoloWork::largest(int number) {
  if (!group_) return number;
  const std::string mine = std::to_string(number);
  std::vector<std::string> all;
  do all = group_->all_gather(mine);
  while (all.front() == kContinues);
  for (const std::string& text : all) number = std::max(number, std::stoi(text));
  return number;
}

fs::path launched_run(const LaunchPlace& place) {
  const fs::path note = note_of(place);
  constexpr std::size_t kMaxBytes = 1 << 16;
  return note.empty() || !fs::exists(note) ? fs::path{} : fs::path(read_file(note, kMaxBytes));
}

void remember_run(const LaunchPlace& place, const fs::path& run) {
  if (const fs::path note = note_of(place); !note.empty())
    write_file_atomically(note, fs::absolute(run).string());
}

StartRequest request_of_start(const LaunchPlace& place, const Request& requested) {
  return request_to_continue(place && place->restart_count > 0 ? launched_run(place) : fs::path{}, requested);
}

StartRequest request_to_continue(const fs::path& run, const Request& requested) {
  StartRequest start{.request = requested};
  if (run.empty()) return start;
  if (has_checkpoints(run)) {
    start.request.configs.clear();
    start.request.resume = run;
    remove_images(start.request);
  } else {
    start.restarts_in = run;
    if (const fs::path config = run / "config.toml"; fs::exists(config)) {
      start.request.configs = {config};
      remove_images(start.request);
    }
  }
  return start;
}

std::string restart_text(const LaunchPlace& place) {
  if (!place || place->restart_count == 0) return {};
  return "restart " + std::to_string(place->restart_count) +
         (place->restart_reason.empty() ? "" : ", because " + place->restart_reason);
}

}  // namespace kindling
