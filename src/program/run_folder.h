#pragma once

#include <chrono>
#include <filesystem>
#include <string>

#include "kindling/training/fit_result.h"

namespace kindling {

// What run.json says beside versions and devices.
struct RunSummary {
  std::string status = "running";  // running, finished, stopped, failed
  std::string device{};
  std::string device_note{};  // why there are fewer cards than asked; empty: as asked
  std::int64_t seed = 0;
  std::string best_name{};  // monitored value; empty: none
  double best_value = 0;
  std::int64_t best_epoch = 0;
  Metrics metrics{};  // of the last epoch
  std::int64_t global_step = 0;
};

// The folder of one run: DIR/NAME/0001, the next free number.
class RunFolder {
 public:
  // Makes it. Throws Error when it cannot be made or written.
  RunFolder(const std::filesystem::path& dir, const std::string& name);

  const std::filesystem::path& path() const noexcept { return path_; }
  std::filesystem::path file(const char* name) const { return path_ / name; }

  void write_config(const std::string& text) const;
  void write_command(int argc, char** argv) const;
  // run.json; written anew at every call.
  void write_summary(const RunSummary& summary) const;

 private:
  std::filesystem::path path_;
  std::chrono::system_clock::time_point started_ = std::chrono::system_clock::now();
};

}  // namespace kindling
