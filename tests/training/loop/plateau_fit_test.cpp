// Schedules that look at the epochs or change the momentum, in a training.
#include <gtest/gtest.h>

#include "kindling/base/error.h"
#include "kindling/optim/adam.h"
#include "kindling/optim/cosine_schedules.h"
#include "kindling/optim/decay_schedules.h"
#include "support/scratch.h"
#include "training/loop/small_fit.h"

namespace kindling {
namespace {

// Its validation tells what has been written down for it, one value per epoch.
class Told : public Slope {
 public:
  explicit Told(std::vector<double> all) : values(std::move(all)) {}
  void validation_step(const Batch&) override {
    if (trainer().epoch() < static_cast<std::int64_t>(values.size()))
      log("score", values[static_cast<std::size_t>(trainer().epoch())]);
  }
  Monitor monitor() const override { return {"score", /*higher_is_better=*/true}; }
  std::vector<double> values;
};

const std::vector<double> kScores{1, 2, 2, 2, 3, 1, 1};
// One epoch without an improvement is borne: the second one halves the rate of the next.
const std::vector<double> kRates{1, 1, 1, 1, 0.5, 0.5, 0.5, 0.25};

TrainerOptions on_plateau(std::shared_ptr<MemoryLogger> logger, PlateauScheduleOptions options = {}) {
  options.factor = 0.5;
  options.patience = 1;
  return {.max_epochs = 8,
          .num_sanity_val_steps = 0,
          .optimizer = sgd(1),
          .schedule = plateau_schedule(options),
          .loggers = {logger}};
}

std::vector<double> rates_in(const MemoryLogger& logger) {
  std::vector<double> rates;
  for (const Record& record : logger.records()) rates.push_back(value_of(record, "lr"));
  return rates;
}

TEST(PlateauInAFit, HalvesTheRateWhenTheMonitorStagnates) {
  const auto logger = std::make_shared<MemoryLogger>();
  const auto model = std::make_shared<Told>(std::vector<double>{1, 2, 2, 2, 3, 1, 1, 5});
  TensorData data = ramp(4, 2, 2);
  Trainer trainer(on_plateau(logger));
  trainer.fit(model, data);
  EXPECT_EQ(rates_in(*logger), kRates);
  trainer.fit(model, data);  // a new training begins with the whole rate
  std::vector<double> twice = kRates;
  twice.insert(twice.end(), kRates.begin(), kRates.end());
  EXPECT_EQ(rates_in(*logger), twice);
}

TEST(PlateauInAFit, IsSeparateForEachRunWithSharedOptions) {
  const auto logger = std::make_shared<MemoryLogger>(), other_logger = std::make_shared<MemoryLogger>();
  const std::vector<double> scores{1, 2, 2, 2, 3, 1, 1, 5};
  const auto first = std::make_shared<Told>(scores), second = std::make_shared<Told>(scores);
  TensorData data = ramp(4, 2, 2), other_data = ramp(4, 2, 2);
  TrainerOptions options = on_plateau(logger);
  Trainer trainer(options);
  options.loggers = {other_logger};
  Trainer other(options);
  trainer.prepare_data(data);
  other.prepare_data(other_data);
  trainer.prepare_model(first);
  other.prepare_model(second);
  while (!trainer.is_done()) {
    trainer.fit_epoch();
    other.fit_epoch();
  }
  EXPECT_EQ(rates_in(*logger), kRates);
  EXPECT_EQ(rates_in(*other_logger), kRates);
}

TEST(PlateauInAFit, WorksInCustomLoops) {
  const auto logger = std::make_shared<MemoryLogger>();
  Trainer trainer(on_plateau(logger, {.monitor = "reward", .mode = "max"}));
  const auto model = std::make_shared<Slope>();
  trainer.prepare_model(model);
  const at::Tensor x = at::ones({2, 1});
  for (const double reward : {1., 2., 2., 2., 3., 1., 1., 5.}) {
    trainer.train_step(trainer.prepare_batch(Batch{x, 2 * x}));
    trainer.log("reward", reward);
    trainer.finish_epoch();
  }
  EXPECT_EQ(rates_in(*logger), kRates);
}

TEST(PlateauInAFit, SeesValuesThatACallbackAdds) {
  class Derived : public Callback {
   public:
    void on_epoch_record(Trainer&, Module&, Record& record) override {
      record.values.emplace_back("derived", kScores.at(static_cast<std::size_t>(record.epoch - 1) % 7));
    }
  };
  const auto logger = std::make_shared<MemoryLogger>();
  TrainerOptions options = on_plateau(logger, {.monitor = "derived", .mode = "max"});
  options.callbacks = {std::make_shared<Derived>()};
  TensorData data = ramp(4, 0, 2);
  Trainer(options).fit(std::make_shared<Slope>(), data);
  EXPECT_EQ(rates_in(*logger), kRates);
}

TEST(PlateauInAFit, RefusesAMissingValue) {
  const auto logger = std::make_shared<MemoryLogger>();
  TensorData data = ramp(4, 2, 2);
  const std::string text = error_text<ConfigError>([&] {
    Trainer(on_plateau(logger, {.monitor = "val_los", .mode = "min"})).fit(std::make_shared<Slope>(), data);
  });
  EXPECT_NE(
      text.find("plateau schedule: the record of epoch 1 has no 'val_los'; expected: one of train_loss, "
                "val_loss, lr"),
      std::string::npos)
      << text;
  EXPECT_NE(text.find("did you mean 'val_loss'?"), std::string::npos) << text;
  EXPECT_EQ(logger->records().size(), 1u) << "the epoch itself is told";

  TensorData without_validation = ramp(4, 0, 2);
  EXPECT_NE(error_text<ConfigError>([&] {
              Trainer(on_plateau(logger)).fit(std::make_shared<Slope>(), without_validation);
            }).find("has no 'val_loss'"),
            std::string::npos)
      << "nothing would ever come";
}

TEST(PlateauInAFit, WaitsForASkippedValidation) {
  const auto logger = std::make_shared<MemoryLogger>();
  const auto model = std::make_shared<Told>(std::vector<double>{9, 2, 9, 1, 9, 1, 9, 9});
  TensorData data = ramp(4, 2, 2);
  TrainerOptions options = on_plateau(logger);
  options.check_val_every_n_epoch = 2;
  Trainer(options).fit(model, data);
  // Of 2, 1 and 1 the last one, in the sixth epoch, is one too many.
  EXPECT_EQ(rates_in(*logger), (std::vector<double>{1, 1, 1, 1, 1, 1, 0.5, 0.5}));
}

TEST(PlateauInAFit, RequiresAModeForOtherValuesThanTheMonitor) {
  const auto logger = std::make_shared<MemoryLogger>();
  TensorData data = ramp(4, 2, 2);
  EXPECT_EQ(
      error_text<ConfigError>([&] {
        Trainer(on_plateau(logger, {.monitor = "train_loss"})).fit(std::make_shared<Told>(kScores), data);
      }),
      "plateau schedule: monitor is 'train_loss', but mode is not set; expected: whether lower or higher "
      "values are better; set mode to \"min\" or \"max\"");
}

class Momenta : public Callback {
 public:
  void on_before_optimizer_step(Trainer&, Module&, Optimizer& optimizer) override {
    of_steps.push_back(optimizer.momentum());
  }
  std::vector<double> of_steps;
};

TEST(OneCycleInAFit, SetsTheMomentumOfEveryStep) {
  const Schedule cycle = one_cycle_schedule({.base_momentum = 0.5, .max_momentum = 0.75});
  for (const bool is_adam : {false, true}) {
    const auto momenta = std::make_shared<Momenta>();
    TrainerOptions options{.max_epochs = 2, .schedule = cycle, .callbacks = {momenta}};
    if (is_adam)
      options.optimizer = [](const ParameterGroups& all) { return std::make_unique<Adam>(all); };
    else
      options.optimizer = sgd(0.1);
    TensorData data = ramp(10, 0, 1);
    Trainer(options).fit(std::make_shared<Slope>(), data);
    ASSERT_EQ(momenta->of_steps.size(), 20u);
    for (std::int64_t step = 0; step < 20; ++step)
      EXPECT_EQ(momenta->of_steps[static_cast<std::size_t>(step)],
                cycle.momentum({.step = step, .total_steps = 20, .base_lr = 0.1}));
    EXPECT_EQ(momenta->of_steps[5], 0.5);
  }
}

}  // namespace
}  // namespace kindling
