#include "training.h"

#include <kindling/training/trainer.h>

#include <memory>

#include "epoch_clock.h"
#include "report.h"

namespace kindling_bench {

void train(const Options& options, const Workload& workload) {
  Clock clock(options);
  kindling::TrainerOptions how = trainer_options(options, workload);
  how.max_epochs = clock.rounds();
  how.callbacks = {std::make_shared<EpochClock>(clock)};
  kindling::Trainer trainer(how);
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

}  // namespace kindling_bench
