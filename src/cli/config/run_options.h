#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "kindling/config/options.h"

// The options of a run that only the program uses, not the library.
namespace kindling {

// The keys at the top of a config.
struct RunOptions {
  std::int64_t seed = 0;
  std::string name{};

  static constexpr auto fields = kindling::fields(
      kindling::field("seed", &RunOptions::seed,
                      {.doc = "seed of weights, shuffling, and dropout", .min = 0}),
      kindling::field(
          "name", &RunOptions::name,
          {.doc = "name of the run directory; default: the last config file without its extension",
           .example = "\"mnist_mlp\""}));
};

// A name that selects which other keys a table may have.
struct NameOption {
  std::string name{};

  static constexpr auto fields = kindling::fields(kindling::field(
      "name", &NameOption::name, {.doc = "a name that `kindling list` prints", .example = "\"digits\""}));
};

// [optimizer], in addition to the options of the optimizer.
struct OptimizerStartOptions {
  std::optional<std::filesystem::path> init_state{};
  std::string init_key{};
  std::optional<double> weight_decay_end{};

  static constexpr auto fields = kindling::fields(
      kindling::field(
          "init_state", &OptimizerStartOptions::init_state,
          {.doc = "state of a PyTorch optimizer to start from, a .pt file", .example = "\"optimizer.pt\""}),
      kindling::field(
          "init_key", &OptimizerStartOptions::init_key,
          {.doc = "entry of the .pt file that holds the state, such as optimizer; empty: the whole file",
           .example = "\"optimizer\""}),
      kindling::field("weight_decay_end", &OptimizerStartOptions::weight_decay_end,
                      {.doc = "value that weight_decay reaches at the end of the run, along a cosine; groups "
                              "without decay keep none",
                       .min = 0,
                       .example = "0.4"}));
};

// [schedule], in addition to the options of the schedule and the warm-up.
struct ScheduleOptions {
  std::string name = "constant";
  std::string interval = "step";

  static constexpr auto fields =
      kindling::fields(kindling::field("name", &ScheduleOptions::name,
                                       {.doc = "name of the schedule; see `kindling list schedules`"}),
                       kindling::field("interval", &ScheduleOptions::interval,
                                       {.doc = "unit that the schedule counts", .choices = "step|epoch"}));
};

// [checkpoint], in addition to the options of ModelCheckpoint.
struct ResumeOptions {
  std::string resume{};

  static constexpr auto fields = kindling::fields(kindling::field(
      "resume", &ResumeOptions::resume,
      {.doc = "run or checkpoint to resume; last: the newest run of this name; best: its best checkpoint",
       .example = "\"last\""}));
};

// [distributed], in addition to the options of a process group.
struct RestartOptions {
  std::int64_t max_restarts = 0;

  static constexpr auto fields = kindling::fields(kindling::field(
      "max_restarts", &RestartOptions::max_restarts,
      {.doc = "maximum number of restarts after a lost process, with num_processes", .min = 0}));
};

// [lr_finder], in addition to the options of the search.
struct LrFinderUse {
  bool update_attr = true;

  static constexpr auto fields = kindling::fields(
      kindling::field("update_attr", &LrFinderUse::update_attr,
                      {.doc = "set optimizer.lr to the suggestion; false: only write the plot"}));
};

// [run]: the run directory.
struct RunFolderOptions {
  std::string dir = "runs";
  bool jsonl = true;
  bool csv = true;
  bool tensorboard = true;
  bool svg = true;
  bool html = true;
  bool compact_memory = false;

  static constexpr auto fields = kindling::fields(
      kindling::field("dir", &RunFolderOptions::dir,
                      {.doc = "directory of all runs, relative to the current directory"}),
      kindling::field("jsonl", &RunFolderOptions::jsonl, {.doc = "write metrics.jsonl"}),
      kindling::field("csv", &RunFolderOptions::csv, {.doc = "write metrics.csv"}),
      kindling::field("tensorboard", &RunFolderOptions::tensorboard,
                      {.doc = "write events.out.tfevents.* for TensorBoard"}),
      kindling::field("svg", &RunFolderOptions::svg, {.doc = "write curves.svg"}),
      kindling::field("html", &RunFolderOptions::html, {.doc = "write report.html"}),
      kindling::field(
          "compact_memory", &RunFolderOptions::compact_memory,
          {.doc =
               "return large freed blocks of host memory to the system at once: less memory, but slower on "
               "the CPU"}));
};

// [run]: settings of the whole process.
struct ProcessOptions {
  std::string fast_mkl = "auto";
  bool flush_denormal = true;
  std::string on_usr1 = "save";

  static constexpr auto fields = kindling::fields(
      kindling::field("fast_mkl", &ProcessOptions::fast_mkl,
                      {.doc = "use MKL's fast kernels on non-Intel CPUs; auto: if they have AVX2",
                       .choices = "auto|on|off"}),
      kindling::field(
          "flush_denormal", &ProcessOptions::flush_denormal,
          {.doc = "treat denormal numbers, below about 1e-38, as 0 on the CPU, which is slow with "
                  "them"}),
      kindling::field(
          "on_usr1", &ProcessOptions::on_usr1,
          {.doc = "what SIGUSR1 does; requeue: save, stop, and let SLURM start the job again, which resumes",
           .choices = "save|requeue"}));
};

}  // namespace kindling
