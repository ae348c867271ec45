#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

// The records of one run directory, as lists of many runs need them.
namespace kindling {

// The contents of run.json and of the newest record. Missing values are empty.
struct RunRecord {
  // finished, stopped, diverged, failed, running, killed (it says running, but no process has its lock), or
  // unreadable (run.json is not a JSON object)
  std::string status{};
  std::string reason{};  // why the run ended
  std::string started{};
  std::string best_name{};
  std::optional<double> best_value{};
  std::optional<std::int64_t> best_epoch{};
  std::string best_mode{};  // min or max; empty in the records of earlier versions
  std::optional<std::int64_t> epochs{}, steps{};
  std::optional<double> seconds{};  // of the latest start or resume
};

// Returns what the directory records; nothing if it has no run.json. Writes nothing, takes no lock and never
// throws for the contents of files.
std::optional<RunRecord> read_run_record(const std::filesystem::path& run);

}  // namespace kindling
