#include "cli/sweep/sweep_runner.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <iostream>
#include <list>
#include <optional>
#include <thread>

#include "base/folder.h"
#include "cli/config/command_line.h"
#include "cli/config/exit_codes.h"
#include "kindling/base/error.h"
#include "kindling/base/log.h"
#include "kindling/base/number_text.h"
#include "kindling/base/text.h"
#include "kindling/config/document.h"
#include "launch/child_process.h"
#include "loggers/metric_text.h"
#include "runs/run_files.h"
#include "runs/run_folder.h"
#include "runs/sweep_results.h"

namespace kindling {
namespace {

// Returns the arguments that train one run: the same at every start, because a run without a checkpoint
// starts from scratch and any other resumes.
std::vector<std::string> command_of(const SweepPlan& plan, const SweepRun& run,
                                    const SweepRunOptions& options) {
  std::vector<std::string> words{options.program_name, "fit"};
  for (const SweepConfigFile& config : plan.configs) words.insert(words.end(), {"-c", config.path.string()});
  words.insert(words.end(), plan.overrides.begin(), plan.overrides.end());
  for (std::size_t k = 0; k < plan.keys.size(); ++k) words.push_back(plan.keys[k] + "=" + run.values[k]);
  words.insert(words.end(),
               {"run.dir=" + options.folder.string(), "name=" + run.name, "checkpoint.resume=last",
                "run.on_usr1=save", "--progress", "none", "--color", "never"});
  return words;
}

// The processes of a killed sweep are killed with it, and may take a moment to end.
void wait_for_former_process(const std::filesystem::path& folder) {
  constexpr int kMaxPolls = 200;
  for (int i = 0; i < kMaxPolls; ++i) {
    const auto run = newest_run(folder.parent_path(), folder.filename().string());
    if (!run || !is_folder_locked(*run)) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
}

class Sweep {
 public:
  Sweep(const SweepPlan& plan, const SweepRunOptions& options)
      : plan_(plan), options_(options), results_(plan, options.folder) {
    for (std::size_t i = 0; i < plan_.runs.size(); ++i)
      if (results_.is_to_run(i)) pending_.push_back(i);
  }

  int run() {
    print_heading();
    write_files();
    while (true) {
      while (!is_stopping() && running_.size() < static_cast<std::size_t>(options_.jobs) && start_next()) {
      }
      if (running_.empty()) break;
      for (const int signal : signals_.wait(wait_ms())) pass_on(signal);
      take_ends();
      stop_bad_runs();
    }
    try_to_write_files();  // with the runs of other processes
    print_end();
    if (!problem_.empty())
      throw ConfigError({.place = problem_,
                         .found = "the config was changed while the sweep was running",
                         .wanted = "the text that the sweep was started with",
                         .remedy = "undo the change, or start another sweep"});
    if (signal_ != 0) return 128 + signal_;
    const auto has_result = [](const SweepRow& row) {
      return row.status == "finished" || row.status == "stopped" || row.status == "median" ||
             row.status == "running";
    };
    return std::ranges::any_of(results_.rows(), has_result) ? 0 : 1;
  }

 private:
  struct Running {
    std::size_t run;
    FolderLock lock;  // of the run's directory in that of the sweep
    ChildProcess process;
    bool was_asked = false;   // to end
    bool was_pruned = false;  // by the median rule: a stop has been sent
  };

  bool is_stopping() const { return signal_ != 0 || !problem_.empty(); }

  // Median stopping follows the metrics while runs are going.
  int wait_ms() const {
    constexpr int kPoll_ms = 200;
    return plan_.median.is_on ? kPoll_ms : -1;
  }

  bool are_configs_unchanged() {
    for (const SweepConfigFile& config : plan_.configs)
      if (small_file(config.path, ConfigDocument::kMaxBytes) != config.text) problem_ = config.path.string();
    return problem_.empty();
  }

  // Starts the next run that no other process has locked. Returns false if there is none.
  bool start_next() {
    if (pending_.empty() || !are_configs_unchanged()) return false;
    for (auto next = pending_.begin(); next != pending_.end();) {
      const std::size_t run = *next;
      create_folders_durably(results_.folder_of(run));
      auto lock = FolderLock::if_free(results_.folder_of(run));
      if (!lock) {
        ++next;  // its process may be killed later
        continue;
      }
      next = pending_.erase(next);
      results_.refresh(run);
      if (!results_.is_to_run(run)) continue;
      start(run, std::move(*lock));
      return true;
    }
    return false;
  }

  void start(std::size_t run, FolderLock lock) {
    wait_for_former_process(results_.folder_of(run));
    ChildStart child{.program = "/proc/self/exe", .command = command_of(plan_, plan_.runs[run], options_)};
    child.has_input_and_output = false;
    child.variables["SLURM_ARRAY_TASK_ID"] = "";  // its name finds the run, from any task of an array
    // The ranks of a launcher that has started this process are others of the sweep.
    child.variables.insert({{"KINDLING_RANK", "0"}, {"KINDLING_SIZE", "1"}, {"KINDLING_STORE_FILE", "none"}});
    child.output = results_.output_of(run);
    if (options_.jobs > 1 && std::getenv("OMP_NUM_THREADS") == nullptr) {
      const std::int64_t threads =
          std::max<std::int64_t>(1, std::thread::hardware_concurrency() / options_.jobs);
      child.variables["OMP_NUM_THREADS"] = std::to_string(threads);
    }
    running_.push_back({.run = run, .lock = std::move(lock), .process = ChildProcess(child, signals_)});
    results_.note_start(run);
  }

  // SIGUSR1 requests checkpoints; the other signals end the runs, and the sweep after them.
  void pass_on(int signal) {
    if (signal != SIGUSR1) signal_ = signal;
    for (Running& one : running_) {
      if (signal == SIGUSR1 && !one.process.handles(signal)) continue;
      // A second signal of its parent would end the run before it has saved.
      if (signal == SIGUSR1 || !std::exchange(one.was_pruned, false)) one.process.send(signal);
      one.was_asked = one.was_asked || signal != SIGUSR1;
    }
  }

  void take_ends() {
    for (auto one = running_.begin(); one != running_.end();) {
      const auto end = one->process.take_end();
      if (!end) {
        ++one;
        continue;
      }
      const std::size_t run = one->run;
      results_.note_end(run, {.exit_code = end->exit_code,
                              .has_diverged = end->exit_code == kDivergedCode,
                              .was_refused = end->exit_code == kConfigErrorCode,
                              .was_asked = one->was_asked});
      one = running_.erase(one);
      try_to_write_files();
      print_row(run);
    }
  }

  // The last process that writes has the rows of all.
  void write_files() {
    const FolderLock lock = lock_folder_within(options_.folder, kSweepLockTimeout_ms);
    results_.refresh();
    results_.write_tables();
    results_.write_report();
  }

  // A full disk must not end the runs, whose own files say what happens to them.
  void try_to_write_files() try { write_files(); } catch (const std::exception& error) {
    log_warning(std::string("the files of the sweep cannot be written: ") + error.what());
  }

  void stop_bad_runs() {
    if (is_stopping()) return;
    for (Running& one : running_)
      if (results_.stop_by_median(one.run)) {
        one.process.send(SIGTERM);
        one.was_pruned = true;
      }
  }

  void print_heading() const {
    if (options_.quiet || options_.json) return;
    const std::size_t total = plan_.runs.size(), ended = total - pending_.size();
    std::cout << "sweep   " << options_.folder.string() << "   " << total << (total == 1 ? " run" : " runs");
    if (ended > 0) std::cout << ", " << ended << " already ended";
    if (options_.jobs > 1) std::cout << ", " << options_.jobs << " at a time";
    std::cout << std::endl;
  }

  void print_row(std::size_t run) const {
    if (options_.quiet || options_.json) return;
    const SweepRow& row = results_.rows()[run];
    std::cout << plan_.runs[run].name << "   " << one_line(values_text(plan_, plan_.runs[run])) << "   "
              << row.status;
    if (row.best)
      std::cout << "   " << one_line(row.monitor) << " " << metric_text(*row.best) << " @ epoch "
                << row.best_epoch.value_or(0);
    if (!row.note.empty()) std::cout << "   " << row.note;
    std::cout << std::endl;
  }

  void print_end() const {
    const auto& rows = results_.rows();
    if (options_.json) {
      std::cout << sweep_json(plan_, rows);
      return;
    }
    std::cout << (options_.quiet ? "" : "\n") << sweep_text(plan_, rows);
    if (const auto best = best_row(rows, plan_.monitor, results_.higher_is_better()))
      std::cout << "best   " << plan_.runs[*best].name << "   "
                << one_line(values_text(plan_, plan_.runs[*best])) << "\n";
    const auto num_running = static_cast<std::size_t>(std::ranges::count(rows, "running", &SweepRow::status));
    if (num_running > 0) std::cout << counted(num_running, "run") << " in other processes of this sweep\n";
    if (signal_ != 0)
      std::cout << "resume with   kindling sweep " << shell_word(options_.folder.string()) << "\n";
    std::cout << std::flush;
  }

  const SweepPlan& plan_;
  const SweepRunOptions& options_;
  SweepResults results_;
  ForwardedSignals signals_{};
  std::list<std::size_t> pending_{};
  std::list<Running> running_{};
  int signal_ = 0;
  std::string problem_{};  // a config file that was changed
};

}  // namespace

int run_sweep(const SweepPlan& plan, const SweepRunOptions& options) { return Sweep(plan, options).run(); }

}  // namespace kindling
