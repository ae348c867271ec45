#include "training.h"

#include <kindling/interop/export_program.h>
#include <kindling/interop/exported_module.h>
#include <kindling/training/trainer.h>
#include <unistd.h>

#include <filesystem>
#include <memory>

#include "epoch_clock.h"
#include "report.h"

namespace kindling_bench {

namespace {

// The same model, exported as a program and loaded again; for cases with squared error.
std::shared_ptr<kindling::Module> as_program(const Workload& workload) {
  const auto file =
      std::filesystem::temp_directory_path() / ("kindling_bench-" + std::to_string(::getpid()) + ".pt2");
  kindling::Batch example;
  const auto loader = workload.data->train_dataloader();
  loader->next(example);
  kindling::export_program(*workload.model, example, {.path = file, .train = true});
  auto program = std::make_shared<kindling::ExportedModule>(
      kindling::ExportedModuleOptions{.file = file, .loss = "mse"});
  std::filesystem::remove(file);
  return program;
}

// Ranks share the images of an epoch, and take fewer steps together.
double parts_of_epoch(const Workload& workload, const kindling::ProcessGroup* group) {
  const bool are_steps = group != nullptr && workload.unit == "us/step";
  return static_cast<double>(workload.size) / static_cast<double>(are_steps ? group->size() : 1);
}

}  // namespace

void train(const Options& options, const Workload& given) {
  Workload workload = given;
  if (options.peer.starts_with("kindling_exported")) workload.model = as_program(given);
  Clock clock(options);
  kindling::TrainerOptions how = trainer_options(options, workload);
  how.max_epochs = clock.rounds();
  how.callbacks = {std::make_shared<EpochClock>(clock)};
  how.process_group = kindling::ProcessGroup::from_environment();
  kindling::Trainer trainer(how);
  const double loss = trainer.fit(workload.model, *workload.data).metrics.at("train_loss");
  if (how.process_group && how.process_group->rank() != 0) return;
  const double size = parts_of_epoch(workload, how.process_group.get());
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

}  // namespace kindling_bench
