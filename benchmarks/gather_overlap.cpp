#include "gather_overlap.h"

#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <kindling/data/data_module.h>
#include <kindling/data/dataset.h>
#include <kindling/models/mlp.h>
#include <kindling/optim/adam.h>
#include <kindling/training/callback.h>
#include <kindling/training/trainer.h>

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

constexpr std::int64_t kBatch = 256, kInputs = 784;
constexpr std::int64_t kBatches = 235;  // as MNIST has

// Samples in memory, and as many seconds of computation per batch as are asked for, or of waiting, as for a
// disk.
struct CostlySamples : kindling::TensorDataset {
  CostlySamples()
      : TensorDataset({at::randn({kBatch * kBatches, kInputs}), at::randint(10, {kBatch * kBatches})}) {}
  bool is_thread_safe() const override { return true; }
  void gather(const at::Tensor& indices, kindling::Batch& batch) const override {
    const double end = (waits ? wall_seconds() : thread_cpu_seconds()) + seconds;
    TensorDataset::gather(indices, batch);
    constexpr double kLateness = 3e-4;  // with which a sleeping thread may continue
    if (const double rest = end - kLateness - wall_seconds(); waits && rest > 0)
      std::this_thread::sleep_for(std::chrono::duration<double>(rest));
    while ((waits ? wall_seconds() : thread_cpu_seconds()) < end) {
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

// After a warm-up, epochs alternate: one measures a step, with batches that cost nothing else; in the next,
// batches cost as much as that step, and the waits are measured.
class AlternatingCosts : public kindling::Callback {
 public:
  explicit AlternatingCosts(std::shared_ptr<CostlySamples> samples) : samples_(std::move(samples)) {
    samples_->seconds = 0;
  }

  void on_epoch_end(kindling::Trainer&, kindling::Module&, const kindling::Record& record) override {
    if (record.epoch == 1) return;
    if (samples_->seconds > 0) {
      waits.push_back(*record.find("data_wait_share"));
      samples_->seconds = 0;
    } else {
      samples_->seconds = kBatch / *record.find("samples_per_s") * (1 - *record.find("data_wait_share"));
      steps.push_back(samples_->seconds * 1e6);
    }
  }

  std::vector<double> steps, waits;  // microseconds, fractions

 private:
  std::shared_ptr<CostlySamples> samples_;
};

std::shared_ptr<AlternatingCosts> fit(const Options& options, std::shared_ptr<CostlySamples> samples,
                                      std::int64_t num_workers) {
  const auto costs = std::make_shared<AlternatingCosts>(samples);
  CostlyData data(std::move(samples), num_workers);
  kindling::TrainerOptions how{
      .max_epochs = 1 + 2 * options.repeats, .optimizer = [](kindling::ParameterGroups parameters) {
        return std::make_unique<kindling::Adam>(std::move(parameters), kindling::AdamOptions{.lr = 1e-3});
      }};
  how.callbacks = {costs};
  kindling::Trainer(how).fit(std::make_shared<kindling::Mlp>(kindling::MlpOptions{.hidden = {512, 512}}),
                             data);
  return costs;
}

}  // namespace

void gather_overlap(const Options& options) {
  const auto samples = std::make_shared<CostlySamples>();
  for (const bool waits : {false, true})
    for (const std::int64_t num_workers : {0, 1}) {
      samples->waits = waits;
      Options variant = options;
      variant.variant = (waits ? "waiting/" : "computing/") + std::to_string(num_workers);
      const auto costs = fit(options, samples, num_workers);
      report(variant, {.metric = "step", .unit = "us", .values = costs->steps});
      report(variant, {.metric = "data_wait_share", .unit = "fraction", .values = costs->waits});
    }
}

}  // namespace kindling_bench
