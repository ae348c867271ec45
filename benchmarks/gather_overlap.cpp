#include "gather_overlap.h"

#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <kindling/data/data_module.h>
#include <kindling/data/dataset.h>
#include <kindling/loggers/memory_logger.h>
#include <kindling/models/mlp.h>
#include <kindling/optim/adam.h>
#include <kindling/training/trainer.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "clock.h"
#include "report.h"

namespace kindling_bench {
namespace {

constexpr std::int64_t kBatch = 256, kBatches = 60, kInputs = 784;

// Samples in memory, and as many seconds of computation per batch as are asked for, or of waiting, as for a
// disk.
struct CostlySamples : kindling::TensorDataset {
  CostlySamples()
      : TensorDataset({at::randn({kBatch * kBatches, kInputs}), at::randint(10, {kBatch * kBatches})}) {}
  bool is_thread_safe() const override { return true; }
  void gather(const at::Tensor& indices, kindling::Batch& batch) const override {
    const double end = thread_cpu_seconds() + seconds, end_of_wait = wall_seconds() + seconds;
    TensorDataset::gather(indices, batch);
    if (waits) std::this_thread::sleep_for(std::chrono::duration<double>(end_of_wait - wall_seconds()));
    while (!waits && thread_cpu_seconds() < end) {
    }
  }
  std::atomic<double> seconds = 0;
  std::atomic<bool> waits = false;
};

struct CostlyData : kindling::DataModule {
  CostlyData(std::shared_ptr<CostlySamples> samples, std::int64_t num_workers)
      : DataModule({.batch_size = kBatch, .num_workers = num_workers}),
        loader(std::make_shared<kindling::DataLoader>(std::move(samples), loader_options(/*train=*/true))) {}
  std::shared_ptr<kindling::DataLoader> train_dataloader() override { return loader; }
  std::shared_ptr<kindling::DataLoader> loader;
};

// Returns a value of each epoch's record; the first epoch is a warm-up.
std::vector<double> values_of(const std::vector<kindling::Record>& records, const char* name) {
  std::vector<double> values;
  for (std::size_t i = 1; i < records.size(); ++i) values.push_back(*records[i].find(name));
  return values;
}

std::vector<kindling::Record> fit(const Options& options, std::shared_ptr<CostlySamples> samples,
                                  std::int64_t num_workers) {
  CostlyData data(std::move(samples), num_workers);
  const auto logger = std::make_shared<kindling::MemoryLogger>();
  kindling::TrainerOptions how{
      .max_epochs = options.repeats + 1, .optimizer = [](kindling::ParameterGroups parameters) {
        return std::make_unique<kindling::Adam>(std::move(parameters), kindling::AdamOptions{.lr = 1e-3});
      }};
  how.loggers = {logger};
  kindling::Trainer(how).fit(std::make_shared<kindling::Mlp>(kindling::MlpOptions{.hidden = {512, 512}}),
                             data);
  return logger->records();
}

}  // namespace

void gather_overlap(const Options& options) {
  const auto samples = std::make_shared<CostlySamples>();
  std::vector<double> steps = values_of(fit(options, samples, 0), "samples_per_s");
  for (double& value : steps) value = kBatch / value;
  std::sort(steps.begin(), steps.end());
  samples->seconds = steps[steps.size() / 2];
  for (double& value : steps) value *= 1e6;
  report(options, {.metric = "step", .unit = "us", .values = steps});
  for (const bool waits : {false, true})
    for (const std::int64_t num_workers : {0, 1}) {
      samples->waits = waits;
      Options variant = options;
      variant.variant = (waits ? "waiting/" : "computing/") + std::to_string(num_workers);
      report(variant, {.metric = "data_wait_share",
                       .unit = "fraction",
                       .values = values_of(fit(options, samples, num_workers), "data_wait_share")});
    }
}

}  // namespace kindling_bench
