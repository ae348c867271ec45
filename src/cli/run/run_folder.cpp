#include "cli/run/run_folder.h"

#include <torch/version.h>
#include <unistd.h>

#include <ctime>
#include <fstream>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>

#include "base/folder.h"
#include "base/joined.h"
#include "base/system.h"
#include "cli/config/command_line.h"
#include "kindling/base/error.h"
#include "kindling/base/file.h"
#include "kindling/base/text.h"
#include "kindling/base/version.h"
#include "kindling/config/document.h"
#include "kindling/device/host_info.h"

namespace kindling {
namespace {

namespace fs = std::filesystem;

std::string utc_text(std::chrono::system_clock::time_point time) {
  const std::time_t seconds = std::chrono::system_clock::to_time_t(time);
  std::tm parts{};
  gmtime_r(&seconds, &parts);
  char text[32];
  const std::size_t size = std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return {text, size};
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
  for (const auto& [key, samples] : {std::pair("train", data.train), {"val", data.val}})
    if (samples) json[key] = *samples;
  for (const auto& [name, samples] : data.more_val) json["val/" + name] = samples;
  if (!data.skipped.empty()) json["skipped"] = data.skipped.size();
  if (!data.class_names.empty()) json["class_names"] = data.class_names;
  if (!data.checksum.empty()) json["checksum"] = data.checksum;
  return json;
}

}  // namespace

bool is_sweep(const fs::path& folder) {
  std::error_code ignored;
  return fs::exists(folder / kSweepPlanFile, ignored);
}

std::string run_status(const fs::path& run) { return run_text(run, "status"); }

std::string run_fast_mkl(const fs::path& run) { return run_text(run, "fast_mkl"); }

DataSummary run_data(const fs::path& run) {
  std::ifstream stream(run / "run.json");
  const Json json = Json::parse(stream, nullptr, /*allow_exceptions=*/false);
  DataSummary data;
  if (!json.is_object() || !json.contains("data") || !json["data"].is_object()) return data;
  for (const auto& [key, value] : json["data"].items()) {
    if (key == "name" && value.is_string()) data.name = value;
    if (key == "checksum" && value.is_string()) data.checksum = value;
    if (key == "train" && value.is_number_integer()) data.train = value.get<std::int64_t>();
    if (key == "val" && value.is_number_integer()) data.val = value.get<std::int64_t>();
    if (key.starts_with("val/") && value.is_number_integer()) data.more_val[key.substr(4)] = value;
    if (key == "class_names" && value.is_array())
      for (const Json& name : value)
        if (name.is_string()) data.class_names.push_back(name);
  }
  return data;
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

FitFolder::Claim FitFolder::claim(const fs::path& runs) {
  RunClaim made = claim_run(runs, {.may_reuse = true, .remedy = "choose another directory with run.dir"});
  return {.run = std::move(made.run), .lock = std::move(made.lock), .is_reused = made.is_reused};
}

FitFolder::FitFolder(const fs::path& dir, const std::string& name) : FitFolder(claim(dir / name)) {}

FitFolder::FitFolder(fs::path run) : FitFolder(Claim{.run = run, .lock = FolderLock(run)}) {}

FitFolder::FitFolder(Claim claim)
    : path_(std::move(claim.run)), lock_(std::move(claim.lock)), is_reused_(claim.is_reused) {
  if (lock_) delete_stale_temporary_files(path_);
}

FitFolder FitFolder::of_another_process(fs::path run) {
  create_folders_durably(run);
  return FitFolder(Claim{.run = std::move(run), .lock = std::nullopt});
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

void FitFolder::write_command(int argc, char** argv) const {
  if (!lock_) return;
  const std::span words(argv, static_cast<std::size_t>(argc));
  AppendFile(file("command.txt")).append(joined(words, " ", shell_word) + "\n");
}

void FitFolder::write_summary(const RunSummary& summary) const {
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
    json["best"] = {{"name", summary.best_name},
                    {"value", summary.best_value},
                    {"epoch", summary.best_epoch},
                    {"mode", summary.higher_is_better ? "max" : "min"}};
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
