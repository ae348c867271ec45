#include "cli/run/run_folder.h"

#include <torch/version.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <fstream>
#include <nlohmann/json.hpp>
#include <span>

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

[[noreturn]] void refuse(const fs::path& path, const std::error_code& error) {
  throw Error({.place = path.string(),
               .found = "cannot create the run directory: " + error.message(),
               .wanted = "a writable directory",
               .remedy = "choose another directory with run.dir"});
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

// Creates the directory with the next free number.
fs::path made(const fs::path& runs) {
  std::error_code error;
  fs::create_directories(runs, error);
  if (error) refuse(runs, error);
  for (std::int64_t number = largest_number(runs) + 1;; ++number) {
    const fs::path run = numbered(runs, number);
    if (fs::create_directory(run, error)) return run;  // another run may take the number meanwhile
    if (error) refuse(run, error);
  }
}

std::string summary_text(const fs::path& run, const char* key) {
  std::ifstream stream(run / "run.json");
  const auto json = nlohmann::json::parse(stream, nullptr, /*allow_exceptions=*/false);
  return json.is_object() ? json.value(key, "") : "";
}

}  // namespace

std::optional<fs::path> newest_run(const fs::path& dir, const std::string& name) {
  const std::int64_t number = largest_number(dir / name);
  return number == 0 ? std::nullopt : std::optional(numbered(dir / name, number));
}

std::string run_status(const fs::path& run) { return summary_text(run, "status"); }

std::string run_fast_mkl(const fs::path& run) { return summary_text(run, "fast_mkl"); }

RunFolder::RunFolder(const fs::path& dir, const std::string& name) : RunFolder(made(dir / name)) {}

RunFolder::RunFolder(fs::path run) : path_(std::move(run)), lock_(path_) {}

RunFolder RunFolder::of_another_process(fs::path run) {
  std::error_code error;
  fs::create_directories(run, error);
  if (error) refuse(run, error);
  return {std::move(run), std::nullopt};
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
  const auto now = std::chrono::system_clock::now();
  nlohmann::ordered_json json{
      {"status", summary.status},
      {"seed", summary.seed},
      {"started", utc_text(started_)},
      {"written", utc_text(now)},
      {"seconds", std::chrono::duration<double>(now - started_).count()},
      {"global_step", summary.global_step},
      {"device", summary.device},
      {"device_note", summary.device_note},
      {"processes", summary.num_processes},
      {"cpu", host_info().cpu_model},
      {"threads", host_info().num_threads},
      {"fast_mkl", summary.fast_mkl},
      {"float32_matmul_precision", summary.float32_matmul_precision},
      {"kindling", version()},
      {"libtorch", TORCH_VERSION},
      {"process", static_cast<std::int64_t>(getpid())},
  };
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
  write_file_atomically(file("run.json"),
                        json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n");
}

}  // namespace kindling
