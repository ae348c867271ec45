// The records of steps and epochs that loggers get.
#include <gtest/gtest.h>

#include "kindling/models/mlp.h"
#include "kindling/optim/decay_schedules.h"
#include "support/device_under_test.h"
#include "training/loop/small_fit.h"

namespace kindling {
namespace {

class Records : public OnDevice {
 protected:
  // Of a fit over batches {0, 1}, {2, 3}, {4} per epoch.
  std::vector<Record> of(TrainerOptions options, std::shared_ptr<Module> model = std::make_shared<Slope>()) {
    const auto logger = std::make_shared<MemoryLogger>();
    options.num_gpus = num_gpus_wanted();
    options.loggers = {logger};
    if (!options.optimizer) options.optimizer = sgd(0.125);
    TensorData data = ramp(5, 2, 2);
    Trainer(options).fit(std::move(model), data);
    return logger->records();
  }
};
KINDLING_RUN_ON_TRAINER_DEVICES(Records);

TEST_P(Records, EpochHasEveryKeyOnce) {
  const std::vector<Record> records = of({.max_epochs = 2, .gradient_clip_val = 1});
  ASSERT_EQ(records.size(), 2);
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(records[i].kind, Record::Kind::epoch);
    EXPECT_EQ(records[i].epoch, static_cast<std::int64_t>(i) + 1);
    EXPECT_EQ(records[i].global_step, 3 * (static_cast<std::int64_t>(i) + 1));
    EXPECT_EQ(
        names_of(records[i]),
        (std::vector<std::string>{"train_loss", "val_loss", "lr", "epoch_time_s", "samples_per_s",
                                  "data_wait_share", "host_waits", "device_to_host_copies",
                                  "device_to_host_bytes", "host_to_device_copies", "host_to_device_bytes"}));
    EXPECT_GT(value_of(records[i], "epoch_time_s"), 0);
    EXPECT_GT(value_of(records[i], "samples_per_s"), 0);
    EXPECT_GE(value_of(records[i], "data_wait_share"), 0);
    EXPECT_LE(value_of(records[i], "data_wait_share"), 1);
    EXPECT_EQ(value_of(records[i], "lr"), 0.125);
  }
}

TEST_P(Records, StepsHaveLossRateAndNorm) {
  const std::vector<Record> records = of({.max_epochs = 1,
                                          .gradient_clip_val = 100,
                                          .log_every_n_steps = 1,
                                          .schedule = step_schedule({.step_size = 1, .gamma = 0.5})});
  ASSERT_EQ(records.size(), 4);
  // w: 0, then 0.5/8, then 2.5/16 more; the loss is (2 - w)·mean(x), the norm mean(x).
  const double losses[] = {1, (2 - 0.0625) * 2.5, (2 - 0.21875) * 4}, norms[] = {0.5, 2.5, 4};
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(records[i].kind, Record::Kind::step);
    EXPECT_EQ(records[i].global_step, static_cast<std::int64_t>(i) + 1);
    EXPECT_EQ(records[i].epoch, 1);
    EXPECT_EQ(names_of(records[i]), (std::vector<std::string>{"train_loss_step", "lr", "grad_norm"}));
    EXPECT_EQ(value_of(records[i], "train_loss_step"), losses[i]);
    EXPECT_EQ(value_of(records[i], "lr"), 0.125 / (1 << i));
    EXPECT_NEAR(value_of(records[i], "grad_norm"), norms[i], 1e-6);  // a square root of squares
  }
  EXPECT_EQ(records[3].kind, Record::Kind::epoch);
  EXPECT_EQ(records[3].find("grad_norm"), nullptr);
}

TEST_P(Records, EveryNthStepCountedOverTheWholeRun) {
  std::vector<std::int64_t> steps;
  for (const Record& record : of({.max_epochs = 3, .log_every_n_steps = 2}))
    if (record.kind == Record::Kind::step) {
      steps.push_back(record.global_step);
      EXPECT_EQ(names_of(record), (std::vector<std::string>{"train_loss_step", "lr"}));
    }
  EXPECT_EQ(steps, (std::vector<std::int64_t>{2, 4, 6, 8}));
}

TEST_P(Records, ScheduleMayCountEpochs) {
  const std::vector<Record> records = of({.max_epochs = 3,
                                          .log_every_n_steps = 1,
                                          .schedule = step_schedule({.step_size = 1, .gamma = 0.5}),
                                          .schedule_interval = ScheduleInterval::epoch});
  ASSERT_EQ(records.size(), 12);
  for (const Record& record : records) EXPECT_EQ(value_of(record, "lr"), 0.125 / (1 << (record.epoch - 1)));
}

TEST_P(Records, ScheduleOverEpochsHasTheRunsEpochs) {
  const std::vector<Record> records = of({.max_epochs = 4,
                                          .schedule = linear_schedule({.start_factor = 1, .end_factor = 0}),
                                          .schedule_interval = ScheduleInterval::epoch});
  ASSERT_EQ(records.size(), 4);
  for (int epoch = 0; epoch < 4; ++epoch)
    EXPECT_DOUBLE_EQ(value_of(records[epoch], "lr"), 0.125 * (4 - epoch) / 4);
}

TEST_P(Records, ScheduleOverEpochsKnowsTheEpochsOfItsSteps) {
  const std::vector<Record> records = of({.max_steps = 5,  // 3 steps and 2 more
                                          .schedule = linear_schedule({.start_factor = 1, .end_factor = 0}),
                                          .schedule_interval = ScheduleInterval::epoch});
  ASSERT_EQ(records.size(), 2);
  EXPECT_DOUBLE_EQ(value_of(records[1], "lr"), 0.0625);
}

TEST_P(Records, ScheduleKnowsTheLengthOfTheRun) {
  const std::vector<Record> records = of({.max_epochs = 2,
                                          .max_steps = 4,
                                          .log_every_n_steps = 1,
                                          .schedule = linear_schedule({.start_factor = 1, .end_factor = 0})});
  EXPECT_DOUBLE_EQ(value_of(records[0], "lr"), 0.125);
  EXPECT_DOUBLE_EQ(value_of(records.back(), "lr"), 0.125 / 4);  // the last of 4 steps
}

// Logs a name from the second epoch on.
class LateName : public Slope {
 public:
  at::Tensor training_step(const Batch& batch) override {
    if (trainer().epoch() > 0) log("late", batch[0].mean());
    return Slope::training_step(batch);
  }
};

TEST_P(Records, NamesOfTheUserAreAddedInOrder) {
  const std::vector<Record> records = of({.max_epochs = 2}, std::make_shared<LateName>());
  EXPECT_EQ(records[0].find("late"), nullptr);
  EXPECT_DOUBLE_EQ(value_of(records[1], "late"), 2);  // the mean of 0, 1, 2, 3, 4
}

TEST_P(Records, ClassifiersHaveTheirAccuracies) {
  const auto logger = std::make_shared<MemoryLogger>();
  NoiseImages data(20, 8, 5);
  Trainer({.max_epochs = 1, .num_gpus = num_gpus_wanted(), .loggers = {logger}})
      .fit(std::make_shared<Mlp>(MlpOptions{.hidden = {8}}), data);
  ASSERT_EQ(logger->records().size(), 1);
  const std::vector<std::string> names = names_of(logger->records()[0]);
  EXPECT_EQ((std::vector<std::string>(names.begin(), names.begin() + 5)),
            (std::vector<std::string>{"train_loss", "train_acc", "val_loss", "val_acc", "lr"}));
}

TEST_P(Records, PreviewShowsALoggedStep) {
  class Looker : public Callback {
   public:
    void on_epoch_end(Trainer& trainer, Module&, const Record&) override { seen = trainer.preview(); }
    std::vector<std::pair<std::string, double>> seen;
  };
  const auto looker = std::make_shared<Looker>();
  of({.max_epochs = 1, .callbacks = {looker}});
  // The epoch's log is on the host by then; the last loss is (2 - 3/8)·4.
  EXPECT_EQ(looker->seen, (std::vector<std::pair<std::string, double>>{{"train_loss", 6.5}}));
}

}  // namespace
}  // namespace kindling
