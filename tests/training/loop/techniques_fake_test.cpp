// Optional techniques cost no host wait and no transfer, alone or together.
#include <gtest/gtest.h>

#include "fake_accelerator.h"
#include "kindling/optim/cosine_schedules.h"
#include "kindling/optim/decay_schedules.h"
#include "kindling/optim/parameter_group.h"
#include "kindling/training/early_stopping.h"
#include "kindling/training/exponential_moving_average.h"
#include "kindling/training/stochastic_weight_averaging.h"
#include "training/loop/resumed_fit.h"
#include "training/step/point_gan.h"

namespace kindling {
namespace {

// The device's counts from the end of each step to that of the next, without validations.
struct TechniqueCosts : Callback {
  void on_train_epoch_start(Trainer&, Module&) override { fake::reset_counts(); }
  void on_train_batch_end(Trainer&, Module&) override {
    const fake::Counts counts = fake::counts();
    waits += counts.host_waits() + counts.item_reads + counts.data_dependent_ops;
    to_host += counts.device_to_host_copies;
    to_device += counts.host_to_device_copies;
    ++batches;
    fake::reset_counts();
  }
  void on_validation_end(Trainer&, Module&) override { fake::reset_counts(); }
  std::int64_t waits = 0, to_host = 0, to_device = 0, batches = 0;
};

constexpr std::int64_t kTechniqueEpochs = 4, kTechniqueBatches = 10;

using Technique = std::function<void(TrainerOptions&)>;

// By name; each adds to options.
std::map<std::string, Technique> techniques() {
  return {
      {"accumulation", [](TrainerOptions& options) { options.accumulate_grad_batches = 3; }},
      {"clipping", [](TrainerOptions& options) { options.gradient_clip_val = 0.1; }},
      {"precision", [](TrainerOptions& options) { options.precision = "16-mixed"; }},
      {"guard", [](TrainerOptions& options) { options.on_nonfinite = "skip"; }},
      {"validation",
       [](TrainerOptions& options) {
         options.val_check_interval = 0.5;
         options.min_epochs = 2;
       }},
      {"schedule",
       [](TrainerOptions& options) {
         options.schedule = with_warmup(cosine_schedule(), {.warmup_steps = 3});
       }},
      {"groups",
       [](TrainerOptions& options) {
         options.optimizer = [](ParameterGroups groups) {
           return std::make_unique<AdamW>(by_name(groups, {{.match = "*bias", .weight_decay = 0}}));
         };
       }},
      {"ema",
       [](TrainerOptions& options) {
         options.callbacks.push_back(std::make_shared<ExponentialMovingAverage>(
             ExponentialMovingAverageOptions{.evaluate = false, .apply_at_end = false}));
       }},
      {"swa",
       [](TrainerOptions& options) {
         options.callbacks.push_back(std::make_shared<StochasticWeightAveraging>(
             StochasticWeightAveragingOptions{.swa_lrs = {1e-3}}));
       }},
      {"early stopping",
       [](TrainerOptions& options) {
         options.callbacks.push_back(std::make_shared<EarlyStopping>(EarlyStoppingOptions{.patience = 100}));
       }},
  };
}

std::shared_ptr<TechniqueCosts> costs_of(const std::vector<Technique>& wanted) {
  TrainerOptions options{.max_epochs = kTechniqueEpochs, .num_gpus = 1, .optimizer = rule_named("adamw")};
  const auto costs = std::make_shared<TechniqueCosts>();
  options.callbacks = {costs};
  for (const Technique& technique : wanted) technique(options);
  NoiseImages data(kTechniqueBatches * 4, 4, 4, "off");
  at::manual_seed(7);
  Trainer(options).fit(std::make_shared<Busy>(), data);
  EXPECT_EQ(costs->batches, kTechniqueEpochs * kTechniqueBatches);
  return costs;
}

TEST(FakeTechniques, NeitherWaitNorTransferAloneOrTogether) {
  const auto plain = costs_of({});
  EXPECT_EQ(plain->to_device, 2 * plain->batches);  // images and labels
  std::vector<Technique> all;
  for (const auto& [name, technique] : techniques()) all.push_back(technique);
  std::map<std::string, std::vector<Technique>> cases{{"all together", all}};
  for (const auto& [name, technique] : techniques()) cases[name] = {technique};
  for (const auto& [name, wanted] : cases) {
    SCOPED_TRACE(name);
    const auto costs = costs_of(wanted);
    EXPECT_EQ(costs->waits, 0);
    EXPECT_EQ(costs->to_host, 0);
    EXPECT_EQ(costs->to_device, plain->to_device);
  }
}

TEST(FakeTechniques, SeveralOptimizersNeitherWaitNorTransfer) {
  for (const std::string precision : {"32-true", "16-mixed"})
    for (const std::string on_nonfinite : {"stop", "skip"}) {
      const auto costs = std::make_shared<TechniqueCosts>();
      TensorData data = gan_points();
      Trainer({.max_epochs = 3,
               .num_gpus = 1,
               .gradient_clip_val = 0.1,
               .precision = precision,
               .on_nonfinite = on_nonfinite,
               .schedule = cosine_schedule(),
               .callbacks = {costs}})
          .fit(std::make_shared<PointGan>(2), data);
      EXPECT_EQ(costs->batches, 3 * kGanBatches);
      EXPECT_EQ(costs->waits, 0);
      EXPECT_EQ(costs->to_host, 0);
      EXPECT_EQ(costs->to_device, costs->batches);
    }
}

}  // namespace
}  // namespace kindling
