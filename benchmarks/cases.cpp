#include "cases.h"

#include <kindling/base/error.h>
#include <kindling/training/trainer.h>

#include <cstdio>
#include <filesystem>
#include <iostream>
#include <map>

#include "card_workloads.h"
#include "checkpoints.h"
#include "clock.h"
#include "data_feed.h"
#include "gather_overlap.h"
#include "growth.h"
#include "hdf5_feed.h"
#include "image_feed.h"
#include "image_pixels.h"
#include "optim_only.h"
#include "report.h"
#include "table_feed.h"
#include "training.h"
#include "workloads.h"

namespace kindling_bench {
namespace {

template <Workload (*make)()>
void train(const Options& options) {
  train(options, make());
}

void first_step(const Options& options) {
  const Workload workload = step_tiny();
  kindling::TrainerOptions how = trainer_options(options, workload);
  how.max_steps = 1;
  kindling::Trainer trainer(how);
  trainer.fit(workload.model, *workload.data);
  std::cout << cpu_seconds() << std::endl;
}

struct FirstStep {
  double wall_seconds, cpu_seconds;
};

// A fresh process, from its start to the end of its first step.
FirstStep time_first_step(const std::string& command) {
  const double start = wall_seconds();
  FILE* process = popen(command.c_str(), "r");
  FirstStep step{};
  const bool read = process != nullptr && std::fscanf(process, "%lf", &step.cpu_seconds) == 1;
  step.wall_seconds = wall_seconds() - start;  // before the process ends
  if (process != nullptr) pclose(process);
  if (!read)
    throw kindling::Error({.place = command, .found = "the process did not complete its first step"});
  return step;
}

void cold_start(const Options& options) {
  const std::string command = "'" + std::filesystem::read_symlink("/proc/self/exe").string() +
                              "' --case cold_start --first-step --threads " +
                              std::to_string(options.threads) + " --peer " + options.peer;
  Clock clock(options);
  std::vector<double> cpu, wall;
  for (int round = 0; round < clock.rounds(); ++round) {
    clock.tick();
    const FirstStep step = time_first_step(command);
    if (round == 0) continue;  // the warm-up
    wall.push_back(step.wall_seconds);
    cpu.push_back(step.cpu_seconds);
  }
  clock.tick();
  report(options, {.metric = "cpu", .unit = "s", .values = cpu});
  report(options, {.metric = "wall", .unit = "s", .values = wall});
}

}  // namespace

void run_case(const Options& options) {
  const std::map<std::string, void (*)(const Options&)> cases{
      {"step_tiny", train<step_tiny>}, {"step_deep", train<step_deep>},
      {"lenet", train<lenet>},         {"card_lenet", train<card_lenet>},
      {"card_mlp", train<card_mlp>},   {"card_cifar", train<card_cifar>},
      {"card_gpt2", train<card_gpt2>}, {"fmnist_epoch", train<fmnist_epoch>},
      {"cnn_mnist", train<cnn_mnist>}, {"data_feed", data_feed},
      {"image_feed", image_feed},      {"optim_only", optim_only},
      {"cold_start", cold_start},      {"growth", growth},
      {"ckpt_save", ckpt_save},        {"ckpt_load", ckpt_load},
      {"ckpt_step", ckpt_step},        {"gather_overlap", gather_overlap},
      {"table_feed", table_feed},      {"hdf5_feed", hdf5_feed},
      {"image_pixels", image_pixels}};
  if (options.first_step) return first_step(options);
  // Without a trainer there is no step capture to turn off.
  const bool trains = options.case_name != "data_feed" && options.case_name != "image_feed" &&
                      options.case_name != "table_feed" && options.case_name != "hdf5_feed" &&
                      options.case_name != "image_pixels" && options.case_name != "optim_only";
  if (options.peer == "kindling_eager" && !trains) return;
  const auto found = cases.find(options.case_name);
  if (found != cases.end()) return found->second(options);
  std::string known;
  for (const auto& [name, run] : cases) known += (known.empty() ? "" : ", ") + name;
  throw kindling::ConfigError(
      {.place = "--case", .found = "'" + options.case_name + "'", .wanted = "one of " + known});
}

}  // namespace kindling_bench
