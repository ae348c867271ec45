#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "kindling/config/options.h"

// The options of a run that belong to nothing but the program.
namespace kindling {

// The keys at the top of a config.
struct RunOptions {
  std::int64_t seed = 0;
  std::string name{};

  static constexpr auto fields = kindling::fields(
      kindling::field("seed", &RunOptions::seed, {.doc = "of weights, shuffling and dropout", .min = 0}),
      kindling::field("name", &RunOptions::name,
                      {.doc = "of the run's folder; default: stem of the last config file"}));
};

// [model], beside the model's own options.
struct ModelOptions {
  std::string name{};
  std::optional<std::filesystem::path> init_weights{};
  std::string init_key{};
  std::vector<std::string> freeze{};
  std::vector<std::string> metrics{};

  static constexpr auto fields = kindling::fields(
      kindling::field("name", &ModelOptions::name, {.doc = "see `kindling list models`"}),
      kindling::field("init_weights", &ModelOptions::init_weights,
                      {.doc = "weights to start from: a file (.safetensors or .pt) or a run"}),
      kindling::field("init_key", &ModelOptions::init_key,
                      {.doc = "entry of the .pt that holds them, such as model; empty: it is all of it"}),
      kindling::field("freeze", &ModelOptions::freeze,
                      {.doc = "names of parameters that stay as they are: net.0.*"}),
      kindling::field(
          "metrics", &ModelOptions::metrics,
          {.doc = "beside the model's own; see `kindling list metrics`; options in [metrics.NAME]"}));
};

// A name that chooses what else a table may hold.
struct NameOption {
  std::string name{};

  static constexpr auto fields =
      kindling::fields(kindling::field("name", &NameOption::name, {.doc = "see `kindling list`"}));
};

// [optimizer], beside the optimizer's own options.
struct OptimizerStartOptions {
  std::optional<std::filesystem::path> init_state{};
  std::string init_key{};

  static constexpr auto fields = kindling::fields(
      kindling::field("init_state", &OptimizerStartOptions::init_state,
                      {.doc = "state of Python's optimizer to start from, a .pt"}),
      kindling::field("init_key", &OptimizerStartOptions::init_key,
                      {.doc = "entry of the .pt that holds it, such as optimizer; empty: it is all of it"}));
};

// [schedule], beside the schedule's own options and the warm-up.
struct ScheduleOptions {
  std::string name = "constant";
  std::string interval = "step";

  static constexpr auto fields = kindling::fields(
      kindling::field("name", &ScheduleOptions::name, {.doc = "see `kindling list schedules`"}),
      kindling::field("interval", &ScheduleOptions::interval,
                      {.doc = "what the schedule counts", .choices = "step|epoch"}));
};

// [checkpoint], beside what a ModelCheckpoint can do.
struct ResumeOptions {
  std::string resume{};

  static constexpr auto fields = kindling::fields(kindling::field(
      "resume", &ResumeOptions::resume,
      {.doc = "last: with the newest run of this name; best: from its best checkpoint; or a run's "
              "folder or checkpoint"}));
};

// [distributed], beside what a group of processes knows.
struct RestartOptions {
  std::int64_t max_restarts = 0;

  static constexpr auto fields = kindling::fields(kindling::field(
      "max_restarts", &RestartOptions::max_restarts,
      {.doc = "how often num_processes starts all processes anew when one is lost", .min = 0}));
};

// [lr_finder], beside how it searches.
struct LrFinderUse {
  bool update_attr = true;

  static constexpr auto fields = kindling::fields(
      kindling::field("update_attr", &LrFinderUse::update_attr,
                      {.doc = "optimizer.lr becomes what is found; false: a picture alone"}));
};

// [run]: the folder.
struct RunFolderOptions {
  std::string dir = "runs";
  bool jsonl = true;
  bool csv = true;
  bool compact_memory = false;

  static constexpr auto fields = kindling::fields(
      kindling::field("dir", &RunFolderOptions::dir, {.doc = "folder of all runs, from the current folder"}),
      kindling::field("jsonl", &RunFolderOptions::jsonl, {.doc = "write metrics.jsonl"}),
      kindling::field("csv", &RunFolderOptions::csv, {.doc = "write metrics.csv"}),
      kindling::field(
          "compact_memory", &RunFolderOptions::compact_memory,
          {.doc = "give large blocks of host memory back at once: more fits, slower on the CPU"}));
};

// [run]: what is set for the whole process.
struct ProcessOptions {
  std::string fast_mkl = "auto";
  bool flush_denormal = true;

  static constexpr auto fields = kindling::fields(
      kindling::field("fast_mkl", &ProcessOptions::fast_mkl,
                      {.doc = "MKL's fast kernels on CPUs that are not Intel's; auto: where there is AVX2",
                       .choices = "auto|on|off"}),
      kindling::field("flush_denormal", &ProcessOptions::flush_denormal,
                      {.doc = "numbers below 1e-38 count as 0 on the CPU, which is slow with them"}));
};

}  // namespace kindling
