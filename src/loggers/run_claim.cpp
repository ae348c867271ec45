#include "loggers/run_claim.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <functional>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "base/folder.h"
#include "kindling/base/error.h"

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

}  // namespace

std::optional<fs::path> newest_run(const fs::path& dir, const std::string& name) {
  return newest_in(dir / name);
}

std::optional<fs::path> newest_run_with(const fs::path& runs, std::initializer_list<const char*> files) {
  auto numbers = numbers_in(runs);
  std::ranges::sort(numbers, std::greater());
  for (const std::int64_t number : numbers) {
    const fs::path run = numbered(runs, number);
    std::error_code ignored;
    if (std::ranges::any_of(files, [&](const char* file) { return fs::exists(run / file, ignored); }))
      return run;
  }
  return std::nullopt;
}

std::string run_text(const fs::path& run, const char* key) {
  std::ifstream stream(run / "run.json");
  const auto json = nlohmann::json::parse(stream, nullptr, /*allow_exceptions=*/false);
  return json.is_object() ? json.value(key, "") : "";
}

// Several runs may start at once: a folder belongs to the one that has its lock.
RunClaim claim_run(const fs::path& runs, const RunClaimOptions& options) try {
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

}  // namespace kindling
