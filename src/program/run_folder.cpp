#include "program/run_folder.h"

#include <torch/version.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <nlohmann/json.hpp>
#include <span>

#include "base/joined.h"
#include "kindling/base/error.h"
#include "kindling/base/file.h"
#include "kindling/base/version.h"
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
               .found = "the run's folder cannot be made: " + error.message(),
               .wanted = "a folder that can be written",
               .remedy = "choose another one with run.dir"});
}

std::string utc_text(std::chrono::system_clock::time_point time) {
  const std::time_t seconds = std::chrono::system_clock::to_time_t(time);
  std::tm parts{};
  gmtime_r(&seconds, &parts);
  char text[32];
  const std::size_t size = std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts);
  return {text, size};
}

// A word as a shell would need it to be typed again.
std::string quoted(const std::string& word) {
  if (!word.empty() &&
      word.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_@%+=:,./-") ==
          std::string::npos)
    return word;
  std::string text = "'";
  for (const char c : word) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return text + "'";
}

}  // namespace

RunFolder::RunFolder(const fs::path& dir, const std::string& name) {
  const fs::path parent = dir / name;
  std::error_code error;
  fs::create_directories(parent, error);
  if (error) refuse(parent, error);
  for (std::int64_t number = largest_number(parent) + 1;; ++number) {
    char text[32];
    std::snprintf(text, sizeof text, "%04lld", static_cast<long long>(number));
    path_ = parent / text;
    if (fs::create_directory(path_, error)) return;  // another run may take a number in between
    if (error) refuse(path_, error);
  }
}

void RunFolder::write_config(const std::string& text) const {
  write_file_atomically(file("config.toml"), text);
}

void RunFolder::write_command(int argc, char** argv) const {
  const std::span words(argv, static_cast<std::size_t>(argc));
  write_file_atomically(file("command.txt"), joined(words, " ", quoted) + "\n");
}

void RunFolder::write_summary(const RunSummary& summary) const {
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
      {"cpu", host_info().cpu_model},
      {"threads", host_info().num_threads},
      {"kindling", version()},
      {"libtorch", TORCH_VERSION},
      {"process", static_cast<std::int64_t>(getpid())},
  };
  if (!summary.best_name.empty())
    json["best"] = {
        {"name", summary.best_name}, {"value", summary.best_value}, {"epoch", summary.best_epoch}};
  json["metrics"] = summary.metrics;
  // Names may hold any bytes: what is no UTF-8 is replaced rather than refused.
  write_file_atomically(file("run.json"),
                        json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n");
}

}  // namespace kindling
