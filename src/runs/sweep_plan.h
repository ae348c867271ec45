#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kindling/base/export.h"

// The runs of a sweep, without running anything: a pure function of the sweep's definition.
namespace kindling {

// Numbers from min to max, both included.
struct SweepRange {
  double min = 0, max = 1;
  bool is_log = false;      // spaced evenly in the logarithm
  bool is_integer = false;  // only whole numbers
  std::int64_t num = 0;     // points of a grid; 0: not given
};

// A config key and its values: a list, or else a range.
struct SweepParameter {
  std::string key{};                  // "optimizer.lr"
  std::vector<std::string> values{};  // as in an override of the command line
  std::optional<SweepRange> range{};
};

// A config file as it was when the sweep was started.
struct SweepConfigFile {
  std::filesystem::path path{};  // absolute
  std::string text{};
  friend bool operator==(const SweepConfigFile&, const SweepConfigFile&) = default;
};

// Stops a run whose monitored value at an epoch is worse than the median of the other runs at that epoch.
struct MedianStopping {
  bool is_on = false;
  std::int64_t min_epochs = 1;  // epochs of a run before it can be stopped
  std::int64_t min_runs = 3;    // other runs with a value at the epoch
  friend bool operator==(const MedianStopping&, const MedianStopping&) = default;
};

// What a user asks for.
struct SweepDefinition {
  std::string name{};  // of the sweep's directory
  std::vector<SweepConfigFile> configs{};
  std::vector<std::string> overrides{};  // for all runs
  std::string method = "grid";           // grid, random
  std::int64_t num_runs = 0;             // of random search
  std::int64_t seed = 0;                 // of random search
  std::string monitor{}, mode{};         // empty: those of the model
  MedianStopping median{};
  std::vector<SweepParameter> parameters{};
};

// One run of a sweep: its name, "001", and a value for each key.
struct SweepRun {
  std::string name{};
  std::vector<std::string> values{};
  friend bool operator==(const SweepRun&, const SweepRun&) = default;
};

// The runs and all that determines their results, with the number of jobs as a default. Stored in the sweep's
// directory.
struct SweepPlan {
  std::filesystem::path folder{};  // that relative paths in overrides refer to
  std::int64_t jobs = 1;
  std::vector<SweepConfigFile> configs{};
  std::vector<std::string> overrides{};
  std::string monitor{}, mode{};
  MedianStopping median{};
  std::vector<std::string> keys{};
  std::vector<SweepRun> runs{};
};

// In the directory of a sweep: its plan.
inline constexpr const char* kSweepPlanFile = "sweep.json";
// True for the directory of a sweep, whose runs are in NUMBER/0001.
KINDLING_API bool is_sweep(const std::filesystem::path& folder);

inline constexpr std::int64_t kMaxSweepRuns = 10'000;

// Returns every combination of the values, the last key varying fastest, or `num_runs` random ones. A random
// run depends on the seed, its number and its keys only, so a larger num_runs keeps the former runs. Throws
// ConfigError for a definition without runs or with too many, and for values that cannot be used.
KINDLING_API SweepPlan make_plan(const SweepDefinition& definition);

// Returns the plan as JSON, and reads it again; throws ConfigError for anything else.
KINDLING_API std::string plan_text(const SweepPlan& plan);
KINDLING_API SweepPlan parse_plan(const std::string& text, const std::string& place);

// Returns a line for each difference, "run 003: optimizer.lr: was 0.1, now 0.2"; at most ten, then a count.
KINDLING_API std::vector<std::string> plan_differences(const SweepPlan& was, const SweepPlan& now);

}  // namespace kindling
