// Batches that a rank repeats because it has no samples left are not part of metrics, for any on_nonfinite;
// an epoch without batches is an error.
#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include "kindling/base/error.h"
#include "kindling/nn/manual_module.h"
#include "support/scratch.h"
#include "training/parallel/rank_runs.h"

namespace kindling {
namespace {

// Two sums: samples, batches.
class Count : public Metric {
 public:
  at::Tensor update(const at::Tensor& outputs, const at::Tensor&) const override {
    return at::tensor({static_cast<double>(outputs.size(0)), 1.0}, at::kDouble);
  }
  double compute(std::span<const double> sums, double) const override { return sums[0]; }
};

std::shared_ptr<Module> counting() {
  auto model = mlp({16});
  model->add_metric("count", std::make_shared<Count>());
  return model;
}

class CountingManual : public ManualModule {
 public:
  CountingManual() { add_metric("count", std::make_shared<Count>()); }
  NamedOptimizers configure_named_optimizers() override {
    NamedOptimizers optimizers;
    optimizers["all"] = std::make_unique<AdamW>(*this, AdamWOptions{.lr = 1e-2});
    return optimizers;
  }
  at::Tensor training_step(const Batch& batch) override {
    const at::Tensor outputs = layer_(batch[0].flatten(1));
    const at::Tensor loss = at::cross_entropy_loss(outputs, batch[1]);
    measure(Stage::train, outputs, batch[1]);
    update("all", loss);
    return loss;
  }
  void validation_step(const Batch&) override {}

 private:
  torch::nn::Linear layer_{register_module("layer", torch::nn::Linear(100, 10))};
};

// The last of five global batches has two samples, so two of four ranks have none.
TEST(UncountedBatches, AreNotPartOfMetrics) {
  for (const char* on_nonfinite : {"stop", "skip", "ignore"})
    for (const char* precision : {"32-true", "16-mixed"})
      for (const std::int64_t window : {1, 3}) {
        SCOPED_TRACE(std::string(on_nonfinite) + " " + precision + " " + std::to_string(window));
        const auto change = [&](TrainerOptions& options, std::int64_t) {
          options.on_nonfinite = on_nonfinite;
          options.precision = precision;
          options.accumulate_grad_batches = window;
        };
        const auto runs = run_ranks(4, change, counting);
        EXPECT_EQ(runs[0].result.metrics.at("train_count"), kRankSamples);
      }
}

TEST(UncountedBatches, AreNotPartOfMetricsWithManualUpdates) {
  for (const char* on_nonfinite : {"stop", "skip"}) {
    const auto change = [&](TrainerOptions& options, std::int64_t) {
      options.on_nonfinite = on_nonfinite;
      options.optimizer = nullptr;
    };
    const auto runs = run_ranks(4, change, [] { return std::make_shared<CountingManual>(); });
    EXPECT_EQ(runs[0].result.metrics.at("train_count"), kRankSamples) << on_nonfinite;
  }
}

TEST(UncountedBatches, AnEpochWithoutABatchIsRefused) {
  const auto groups = ProcessGroup::from_threads(2, {.timeout_s = 60});
  on_ranks(groups, [&](ProcessGroup& group) {
    const at::Tensor x = at::arange(5, at::kFloat).unsqueeze(1);
    TensorData data({x, 2 * x}, {}, {.batch_size = 3, .drop_last = true});
    Trainer trainer({.max_epochs = 1, .process_group = groups[static_cast<std::size_t>(group.rank())]});
    const std::string text = error_text<DataError>([&] { trainer.fit(std::make_shared<Slope>(), data); });
    EXPECT_NE(text.find("drop_last leaves no batch of 3 for each of 2 ranks among 5 samples"),
              std::string::npos)
        << text;
  });
}

}  // namespace
}  // namespace kindling
