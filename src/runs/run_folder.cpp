#include "runs/run_folder.h"

#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <initializer_list>
#include <string_view>
#include <utility>

#include "base/folder.h"
#include "base/joined.h"
#include "kindling/base/error.h"
#include "kindling/base/log.h"
#include "kindling/base/text.h"
#include "kindling/config/document.h"
#include "kindling/loggers/csv_logger.h"
#include "kindling/loggers/jsonl_logger.h"
#include "kindling/loggers/tensorboard_logger.h"
#include "kindling/runs/run_folder.h"
#include "runs/run_report.h"

namespace kindling {
namespace {

namespace fs = std::filesystem;

std::vector<std::int64_t> numbers_in(const fs::path& folder) {
  std::vector<std::int64_t> numbers;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    const std::string name = entry.path().filename().string();
    const bool is_number =
        !name.empty() && name.size() < 10 && name.find_first_not_of("0123456789") == std::string::npos;
    if (is_number) numbers.push_back(std::stoll(name));
  }
  return numbers;
}

std::int64_t largest_number(const fs::path& folder) {
  const auto numbers = numbers_in(folder);
  return numbers.empty() ? 0 : *std::ranges::max_element(numbers);
}

fs::path numbered(const fs::path& runs, std::int64_t number) {
  char text[32];
  std::snprintf(text, sizeof text, "%04lld", static_cast<long long>(number));
  return runs / text;
}

// The newest folder of a name; nothing when there is none.
std::optional<fs::path> newest_in(const fs::path& runs) {
  const std::int64_t number = largest_number(runs);
  return number == 0 ? std::nullopt : std::optional(numbered(runs, number));
}

bool has_epochs(const fs::path& records) {
  constexpr std::uintmax_t kMaxBytes = std::uintmax_t{1} << 26;  // so many steps are worth keeping, too
  std::error_code error;
  const std::uintmax_t size = fs::file_size(records, error);
  if (error || size > kMaxBytes) return !error;
  const std::string text = "\n" + read_file(records, kMaxBytes);
  return text.find("\n{\"epoch\": ") != std::string::npos;
}

// Hidden files are locks and temporary files.
bool has_visible_files(const fs::path& folder, std::initializer_list<const char*> except = {}) {
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    const std::string name = entry.path().filename().string();
    const bool is_excepted = std::ranges::any_of(except, [&](const char* one) { return name == one; });
    if (!name.starts_with('.') && !is_excepted) return true;
  }
  return false;
}

// True if a run that is not running any more has left the folder before anything was trained.
bool is_abandoned(const fs::path& run) {
  const auto of_start = {"config.toml", "command.txt", "log.txt", "metrics.jsonl", "checkpoints"};
  // run.json follows the first of these files.
  const bool is_killed =
      fs::exists(run / "run.json") ? run_text(run, "status") == "running" : !has_visible_files(run, of_start);
  return is_killed && !has_visible_files(run / "checkpoints") && !fs::exists(run / "weights.safetensors") &&
         !fs::exists(run / "metrics.csv") && !has_epochs(run / "metrics.jsonl");
}

// Returns the lock of a folder that can be used again; nothing where it belongs to somebody else.
std::optional<FolderLock> lock_of_abandoned(const fs::path& run) try {
  std::error_code ignored;
  if (!fs::is_directory(run, ignored) || !is_abandoned(run)) return std::nullopt;
  std::optional<FolderLock> lock = FolderLock::if_free(run);
  return lock && is_abandoned(run) ? std::move(lock) : std::nullopt;
} catch (const std::exception&) {  // without permission there is a new folder
  return std::nullopt;
}

struct ClaimOptions {
  bool may_reuse = false;  // the newest directory if its run was killed before its first checkpoint and epoch
  std::string remedy = "choose another directory";  // if none can be created
};

// Creates and locks the directory with the next free number in `runs`, or reuses the newest one. What is
// created survives a power loss. Several processes and threads may call it at once: a directory belongs to
// the one that has its lock.
RunClaim claim_run(const fs::path& runs, const ClaimOptions& options = {}) try {
  create_folders_durably(runs);
  if (const auto newest = options.may_reuse ? newest_in(runs) : std::nullopt)
    if (auto lock = lock_of_abandoned(*newest)) {
      create_folders_durably(*newest);  // the killed run may not have come to make its name durable
      return {.run = *newest, .lock = std::move(*lock), .is_reused = true};
    }
  for (std::int64_t number = largest_number(runs) + 1;; ++number) {
    const fs::path run = numbered(runs, number);
    if (!create_new_folder_durably(run)) continue;
    // Before the lock another run may have taken the folder for an abandoned one, and may even have finished.
    if (auto lock = FolderLock::if_free(run); lock && is_abandoned(run))
      return {.run = run, .lock = std::move(*lock)};
  }
} catch (const Error& error) {
  throw Error({.found = std::string("the run's folder cannot be created: ") + error.what(),
               .remedy = options.remedy});
}

// Discards what an earlier start of the run has logged, before the first record of a fit that does not
// resume.
class RestartedLogger : public Logger {
 public:
  explicit RestartedLogger(std::shared_ptr<Logger> logger) : logger_(std::move(logger)) {}

  void write(const Record& record) override {
    if (!is_continued_) resume_at({});
    logger_->write(record);
  }
  void finish() override { logger_->finish(); }
  void finalize(FitStatus status) override { logger_->finalize(status); }
  void sync() override { logger_->sync(); }
  void resume_at(const Progress& at) override {
    logger_->resume_at(at);
    is_continued_ = true;
  }

 private:
  std::shared_ptr<Logger> logger_;
  bool is_continued_ = false;
};

const std::string& directory_name(const std::string& name) {
  const bool is_path = name.find_first_of(std::string_view("/\0", 2)) != std::string::npos;
  if (!is_path && !name.empty() && name != "." && name != "..") return name;
  throw Error({.place = "RunFolder",
               .found = "the name '" + name + "'",
               .wanted = "the name of a directory, without '/'",
               .remedy = "put the path into the first argument"});
}

}  // namespace

std::optional<fs::path> newest_run(const fs::path& dir, const std::string& name) {
  return newest_in(dir / name);
}

std::optional<fs::path> newest_run_where(const fs::path& dir, const std::string& name,
                                         const std::function<bool(const fs::path&)>& condition) {
  const fs::path runs = dir / name;
  auto numbers = numbers_in(runs);
  std::ranges::sort(numbers, std::greater());
  for (const std::int64_t number : numbers)
    if (fs::path run = numbered(runs, number); condition(run)) return run;
  return std::nullopt;
}

std::optional<fs::path> newest_run_with(const fs::path& runs, std::initializer_list<const char*> files) {
  return newest_run_where(runs, "", [&](const fs::path& run) {
    std::error_code ignored;
    return std::ranges::any_of(files, [&](const char* file) { return fs::exists(run / file, ignored); });
  });
}

RunFolder::RunFolder(const fs::path& dir, const std::string& name)
    : RunFolder(claim_run(dir / directory_name(name))) {}

RunFolder::RunFolder(fs::path run)
    : path_(std::move(run)), lock_(path_), has_earlier_records_(std::make_shared<bool>(true)) {
  delete_stale_temporary_files(path_);
}

RunFolder::RunFolder(RunClaim claim)
    : path_(std::move(claim.run)),
      lock_(std::move(*claim.lock)),
      has_earlier_records_(std::make_shared<bool>(false)) {}

std::vector<std::shared_ptr<Logger>> RunFolder::loggers(const EpochTableOptions& monitored) const {
  std::vector<std::shared_ptr<Logger>> loggers = {std::make_shared<JsonlLogger>(path_ / "metrics.jsonl"),
                                                  std::make_shared<CsvLogger>(path_ / "metrics.csv"),
                                                  std::make_shared<TensorBoardLogger>(path_)};
  if (std::exchange(*has_earlier_records_, false))
    for (auto& logger : loggers) logger = std::make_shared<RestartedLogger>(std::move(logger));
  loggers.push_back(
      std::make_shared<RunReport>(path_, RunReportOptions{.is_final_at_finish = true,
                                                          .monitor = monitored.monitor,
                                                          .higher_is_better = monitored.higher_is_better}));
  return loggers;
}

void require_usable(const fs::path& dir) {
  const auto refuse = [](const fs::path& at, const char* what) {
    throw ConfigError({.place = "run.dir",
                       .found = at.string() + what,
                       .wanted = "a directory that exists or can be created",
                       .remedy = "choose another one, for example run.dir=/tmp/runs"});
  };
  std::error_code error;
  fs::path nearest = fs::absolute(dir);
  while (!fs::exists(nearest, error) && nearest.has_relative_path()) nearest = nearest.parent_path();
  if (!fs::is_directory(nearest, error)) refuse(nearest, " is a file");
  if (::access(nearest.c_str(), W_OK | X_OK) != 0) refuse(nearest, " is not writable");
}

FitFolder::FitFolder(const fs::path& dir, const std::string& name)
    : FitFolder(
          claim_run(dir / name, {.may_reuse = true, .remedy = "choose another directory with run.dir"})) {}

FitFolder::FitFolder(fs::path run) : FitFolder(RunClaim{.run = run, .lock = FolderLock(run)}) {}

FitFolder::FitFolder(RunClaim claim)
    : path_(std::move(claim.run)), lock_(std::move(claim.lock)), is_reused_(claim.is_reused) {
  if (lock_) delete_stale_temporary_files(path_);
}

FitFolder FitFolder::of_another_process(fs::path run) {
  create_folders_durably(run);
  return FitFolder(RunClaim{.run = std::move(run), .lock = std::nullopt});
}

void FitFolder::renew_lock() {
  if (lock_) lock_->renew();
}

void FitFolder::write_config(const std::string& text) const {
  if (!lock_) return;
  const fs::path config = file("config.toml");
  if (!fs::exists(config) || read_file(config, ConfigDocument::kMaxBytes) != text)
    write_file_atomically(config, text);
}

void FitFolder::write_skipped(const std::vector<std::string>& skipped) const {
  if (!lock_) return;
  std::error_code error;
  if (skipped.empty())
    fs::remove(file("skipped.txt"), error);  // of an earlier start
  else
    write_file_atomically(file("skipped.txt"), joined(skipped, "\n", one_line) + "\n");
}

void FitFolder::append_command(const std::string& line) const {
  if (lock_) AppendFile(file("command.txt")).append(line + "\n");
}

std::string FitFolder::summary_text(const RunSummary& summary) const { return run_json(summary, start_); }

void FitFolder::write_summary(const RunSummary& summary) const {
  if (lock_) write_file_atomically(file("run.json"), summary_text(summary));
}

// With the name of a temporary file, so that the next start removes what a killed run has left.
fs::path FitFolder::staged_summary() const { return file(".run.json.tmp." + std::to_string(::getpid())); }

void FitFolder::stage_summary(const RunSummary& summary) const {
  if (lock_) write_file_atomically(staged_summary(), summary_text(summary));
}

void FitFolder::commit_summary() const {
  if (!lock_) return;
  fs::rename(staged_summary(), file("run.json"));
  sync_folder(path_);
}

void FitFolder::make_durable() const try {
  if (!lock_) return;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(path_, ignored)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("log.") || name == "command.txt" || name.starts_with("events.out.tfevents."))
      make_file_durable(entry.path());
  }
} catch (const std::exception& error) {
  log_warning(std::string("a power loss may cost the end of the run's files: ") + error.what());
}

}  // namespace kindling
