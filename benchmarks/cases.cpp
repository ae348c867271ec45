#include "cases.h"

#include <kindling/base/error.h>
#include <kindling/data/data_loader.h>
#include <kindling/data/dataset.h>
#include <kindling/training/trainer.h>

#include <cstdio>
#include <filesystem>
#include <iostream>
#include <map>

#include "checkpoints.h"
#include "clock.h"
#include "epoch_clock.h"
#include "report.h"
#include "workloads.h"

namespace kindling_bench {
namespace {

void train(const Options& options, const Workload& workload) {
  Clock clock(options);
  kindling::Trainer trainer({.max_epochs = clock.rounds(),
                             .gradient_clip_val = workload.gradient_clip_val,
                             .optimizer = workload.optimizer,
                             .callbacks = {std::make_shared<EpochClock>(clock)}});
  const double loss = trainer.fit(workload.model, *workload.data).metrics.at("train_loss");
  const auto size = static_cast<double>(workload.size);
  if (workload.unit != "img/s") {
    report_times(options, clock, workload.unit, size, loss);
    return;
  }
  auto cpu = clock.cpu(), rate = clock.wall();
  for (double& seconds : cpu) seconds *= 1e6 / size;
  for (double& seconds : rate) seconds = size / seconds;
  report(options, {.metric = "cpu", .unit = "us/img", .values = cpu, .final_loss = loss});
  report(options, {.metric = "wall", .unit = "img/s", .values = rate, .final_loss = loss});
}

template <Workload (*make)()>
void train(const Options& options) {
  train(options, make());
}

// One shuffled epoch of a loader is one repeat; the batches are only counted.
void data_feed(const Options& options) {
  const auto dataset = std::make_shared<kindling::TensorDataset>(mnist_six_times());
  const kindling::DataOptions order = shuffled(256);
  kindling::DataLoader loader(dataset,
                              {.batch_size = order.batch_size, .shuffle = order.shuffle, .seed = order.seed});
  Clock clock(options);
  for (int round = 0; round < clock.rounds(); ++round) {
    clock.tick();
    std::int64_t count = 0;
    for (const kindling::Batch& batch : loader) count += batch.num_samples();
    if (count != dataset->size())
      throw kindling::Error(
          {.place = "data_feed", .found = "an epoch of " + std::to_string(count) + " samples"});
  }
  clock.tick();
  report_times(options, clock, "us/sample", static_cast<double>(dataset->size()), {});
}

void first_step() {
  const Workload workload = step_tiny();
  kindling::Trainer trainer(
      {.gradient_clip_val = workload.gradient_clip_val, .max_steps = 1, .optimizer = workload.optimizer});
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
  if (!read) throw kindling::Error({.place = command, .found = "it did not make its first step"});
  return step;
}

void cold_start(const Options& options) {
  const std::string command = "'" + std::filesystem::read_symlink("/proc/self/exe").string() +
                              "' --case cold_start --first-step --threads " + std::to_string(options.threads);
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
      {"step_tiny", train<step_tiny>}, {"step_deep", train<step_deep>}, {"fmnist_epoch", train<fmnist_epoch>},
      {"cnn_mnist", train<cnn_mnist>}, {"data_feed", data_feed},        {"cold_start", cold_start},
      {"ckpt_save", ckpt_save},        {"ckpt_load", ckpt_load},        {"ckpt_step", ckpt_step}};
  if (options.first_step) return first_step();
  const auto found = cases.find(options.case_name);
  if (found != cases.end()) return found->second(options);
  std::string known;
  for (const auto& [name, run] : cases) known += (known.empty() ? "" : ", ") + name;
  throw kindling::ConfigError(
      {.place = "--case", .found = "'" + options.case_name + "'", .wanted = "one of " + known});
}

}  // namespace kindling_bench
