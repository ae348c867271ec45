#include "cli/run/run_folder.h"

#include <torch/version.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <fstream>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>

#include "base/folder.h"
#include "base/joined.h"
#include "cli/config/command_line.h"
#include "kindling/base/error.h"
#include "kindling/base/file.h"
#include "kindling/base/version.h"
#include "kindling/config/document.h"
#include "kindling/device/host_info.h"

namespace kindling {
namespace {

namespace fs = std::filesystem;

std::int64_t largest_number(const fs::path& folder) {
  std::int64_t largest = 0;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    const std::string name = entry.path().filename().string();
    const bool is_number =
        !name.empty() && name.size() < 10 && name.find_first_not_of("0123456789") == std::string::npos;
    if (is_number) largest = std::max<std::int64_t>(largest, std::stoll(name));
  }
  return largest;
}

std::string utc_text(std::chrono::system_clock::time_point time) {
  const std::time_t seconds = std::chrono::system_clock::to_time_t(time);
  std::tm parts{};
  gmtime_r(&seconds, &parts);
  char text[32];
  const std::size_t size = std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return {text, size};
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
      fs::exists(run / "run.json") ? run_status(run) == "running" : !has_visible_files(run, of_start);
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

std::string summary_text(const fs::path& run, const char* key) {
  std::ifstream stream(run / "run.json");
  const auto json = nlohmann::json::parse(stream, nullptr, /*allow_exceptions=*/false);
  return json.is_object() ? json.value(key, "") : "";
}

std::string host_name() {
  char name[256] = {};  // POSIX allows 255
  return ::gethostname(name, sizeof name - 1) == 0 ? name : "";
}

using Json = nlohmann::ordered_json;

Json json_of(const GitCommit& git) {
  Json json;
  if (!git.commit.empty()) json["commit"] = git.commit;
  if (!git.branch.empty()) json["branch"] = git.branch;
  return json;
}

Json json_of(const DataSummary& data) {
  Json json;
  if (!data.name.empty()) json["name"] = data.name;
  for (const auto& [key, samples] : {std::pair("train", data.train), {"val", data.val}, {"test", data.test}})
    if (samples) json[key] = *samples;
  if (!data.checksum.empty()) json["checksum"] = data.checksum;
  return json;
}

}  // namespace

std::optional<fs::path> newest_run(const fs::path& dir, const std::string& name) {
  return newest_in(dir / name);
}

std::string run_status(const fs::path& run) { return summary_text(run, "status"); }

std::string run_fast_mkl(const fs::path& run) { return summary_text(run, "fast_mkl"); }

// Several runs may start at once: a folder belongs to the one that has its lock.
RunFolder::Claim RunFolder::claim(const fs::path& runs) try {
  create_folders_durably(runs);
  if (const auto newest = newest_in(runs))
    if (auto lock = lock_of_abandoned(*newest)) {
      create_folders_durably(*newest);  // the killed run may not have come to make its name durable
      return {.run = *newest, .lock = std::move(lock), .is_reused = true};
    }
  for (std::int64_t number = largest_number(runs) + 1;; ++number) {
    const fs::path run = numbered(runs, number);
    if (!create_new_folder_durably(run)) continue;
    // Before the lock another run may have taken the folder for an abandoned one, and may even have finished.
    if (auto lock = FolderLock::if_free(run); lock && is_abandoned(run))
      return {.run = run, .lock = std::move(lock)};
  }
} catch (const Error& error) {
  throw Error({.found = std::string("the run's folder cannot be created: ") + error.what(),
               .remedy = "choose another directory with run.dir"});
}

RunFolder::RunFolder(const fs::path& dir, const std::string& name) : RunFolder(claim(dir / name)) {}

RunFolder::RunFolder(fs::path run) : RunFolder(Claim{.run = run, .lock = FolderLock(run)}) {}

RunFolder::RunFolder(Claim claim)
    : path_(std::move(claim.run)), lock_(std::move(claim.lock)), is_reused_(claim.is_reused) {
  if (lock_) delete_stale_temporary_files(path_);
}

RunFolder RunFolder::of_another_process(fs::path run) {
  create_folders_durably(run);
  return RunFolder(Claim{.run = std::move(run), .lock = std::nullopt});
}

void RunFolder::renew_lock() {
  if (lock_) lock_->renew();
}

void RunFolder::write_config(const std::string& text) const {
  if (!lock_) return;
  const fs::path config = file("config.toml");
  if (!fs::exists(config) || read_file(config, ConfigDocument::kMaxBytes) != text)
    write_file_atomically(config, text);
}

void RunFolder::write_command(int argc, char** argv) const {
  if (!lock_) return;
  const std::span words(argv, static_cast<std::size_t>(argc));
  AppendFile(file("command.txt")).append(joined(words, " ", shell_word) + "\n");
}

void RunFolder::write_summary(const RunSummary& summary) const {
  if (!lock_) return;
  Json json{
      {"status", summary.status},
      {"seed", summary.seed},
      {"started", utc_text(started_)},
      {"written", utc_text(std::chrono::system_clock::now())},
      {"seconds", std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count()},
      {"global_step", summary.global_step},
      {"device", summary.device},
      {"device_note", summary.device_note},
      {"processes", summary.num_processes},
      {"host", host_name()},
      {"cpu", host_info().cpu_model},
      {"threads", host_info().num_threads},
      {"fast_mkl", summary.fast_mkl},
      {"float32_matmul_precision", summary.float32_matmul_precision},
      {"kindling", version()},
      {"libtorch", TORCH_VERSION},
      {"process", static_cast<std::int64_t>(getpid())},
  };
  if (const Json git = json_of(summary.git); !git.is_null()) json["git"] = git;
  if (const Json data = json_of(summary.data); !data.is_null()) json["data"] = data;
  if (!summary.reason.empty()) json["reason"] = summary.reason;
  if (!summary.best_name.empty())
    json["best"] = {
        {"name", summary.best_name}, {"value", summary.best_value}, {"epoch", summary.best_epoch}};
  if (summary.resumed_from_step) json["resumed_from_step"] = *summary.resumed_from_step;
  if (!summary.last_checkpoint.empty()) json["checkpoint"]["last"] = summary.last_checkpoint;
  if (!summary.best_checkpoint.empty()) {
    json["checkpoint"]["best"] = summary.best_checkpoint;
    json["checkpoint"]["best_step"] = summary.best_checkpoint_step;
    if (summary.best_checkpoint_value) json["checkpoint"]["best_value"] = *summary.best_checkpoint_value;
  }
  json["metrics"] = summary.metrics;
  // Names may contain arbitrary bytes: invalid UTF-8 is replaced rather than refused.
  write_file_atomically(file("run.json"), json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
}

}  // namespace kindling
