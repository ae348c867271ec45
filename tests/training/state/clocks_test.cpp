// Rates and fractions of time cover the training part of one epoch. Sleeping takes at least as long as
// requested, so the bounds hold on a machine of any speed.
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "metrics/epoch_clock.h"
#include "training/loop/small_fit.h"

namespace kindling {
namespace {

constexpr double kNap_s = 0.05;

void nap() { std::this_thread::sleep_for(std::chrono::duration<double>(kNap_s)); }

// Four samples; the first `num_naps` loads take a nap.
class Sleepy : public Dataset {
 public:
  std::int64_t size() const override { return 4; }
  void gather(const at::Tensor& indices, Batch& batch) const override {
    if (num_naps > 0) {
      --num_naps;
      nap();
    }
    const at::Tensor x = at::ones({indices.size(0), 1});
    batch = Batch{x, 2 * x};
  }
  mutable int num_naps = 0;
};

// In two batches, for training and for validation.
class SleepyData : public DataModule {
 public:
  std::shared_ptr<DataLoader> train_dataloader() override { return train_loader_; }
  std::shared_ptr<DataLoader> val_dataloader() override { return val_loader_; }

  const std::shared_ptr<Sleepy> train = std::make_shared<Sleepy>(), val = std::make_shared<Sleepy>();

 private:
  std::shared_ptr<DataLoader> train_loader_ =
                                  std::make_shared<DataLoader>(train, DataLoaderOptions{.batch_size = 2}),
                              val_loader_ =
                                  std::make_shared<DataLoader>(val, DataLoaderOptions{.batch_size = 2});
};

class SleepySlope : public Slope {
 public:
  at::Tensor training_step(const Batch& batch) override {
    if (naps_in_training) nap();
    return Slope::training_step(batch);
  }
  void validation_step(const Batch& batch) override {
    if (naps_in_validation) nap();
    Slope::validation_step(batch);
  }
  bool naps_in_training = false, naps_in_validation = false;
};

class Clocks : public testing::Test {
 protected:
  std::vector<Record> records_of(std::int64_t epochs) {
    const auto logger = std::make_shared<MemoryLogger>();
    Trainer({.max_epochs = epochs, .num_sanity_val_steps = 0, .loggers = {logger}}).fit(model_, data_);
    return logger->records();
  }
  static double train_seconds(const Record& record) { return 4 / value_of(record, "samples_per_s"); }
  static double wait_seconds(const Record& record) {
    return value_of(record, "data_wait_share") * train_seconds(record);
  }

  SleepyData data_;
  const std::shared_ptr<SleepySlope> model_ = std::make_shared<SleepySlope>();
};

TEST_F(Clocks, CountSamplesOfTrainingOnly) {
  model_->naps_in_training = true;
  for (const Record& record : records_of(3)) {
    EXPECT_LE(value_of(record, "samples_per_s"), 4 / (2 * kNap_s));
    EXPECT_GT(value_of(record, "samples_per_s"), 0);
  }
}

TEST_F(Clocks, MeasureTheDataWaitOfTheEpoch) {
  data_.train->num_naps = 2;  // the first epoch's
  const std::vector<Record> records = records_of(3);
  EXPECT_GE(wait_seconds(records.at(0)), 2 * kNap_s);
  for (const Record& record : records) EXPECT_LE(value_of(record, "data_wait_share"), 1);
  for (std::size_t i = 1; i < 3; ++i)
    EXPECT_LE(wait_seconds(records.at(i)), value_of(records[i], "epoch_time_s")) << "that epoch was short";
}

TEST_F(Clocks, CountTheTimeOfValidationForTheEpochOnly) {
  model_->naps_in_validation = true;
  data_.train->num_naps = 2;
  for (const Record& record : records_of(2)) {
    EXPECT_GE(value_of(record, "epoch_time_s") - train_seconds(record), 2 * kNap_s);
    EXPECT_LE(value_of(record, "data_wait_share"), 1);
    if (record.epoch == 1) {
      EXPECT_GE(wait_seconds(record), 2 * kNap_s);
    }
  }
}

TEST_F(Clocks, ExcludeTheDataWaitOfValidationFromTraining) {
  data_.val->num_naps = 4;
  for (const Record& record : records_of(2)) {
    EXPECT_LE(value_of(record, "data_wait_share"), 1);
    EXPECT_GE(value_of(record, "epoch_time_s") - train_seconds(record), 2 * kNap_s);
  }
}

TEST_F(Clocks, WorkInCustomLoops) {
  model_->naps_in_training = true;
  Trainer trainer({.max_epochs = 2, .num_sanity_val_steps = 0});
  trainer.prepare_data(data_);
  trainer.prepare_model(model_);
  while (!trainer.is_done()) {
    nap();  // before its epoch begins
    for (const Batch& batch : trainer.train_batches()) trainer.train_step(batch);
    const Metrics values = trainer.finish_epoch();
    EXPECT_LE(values.at("samples_per_s"), 4 / (2 * kNap_s));
    EXPECT_LE(values.at("data_wait_share"), 1);
  }
}

TEST(EpochClock, SupportsReadersWithSeparateStarts) {
  EpochClock clock;
  const auto spend = [&](Activity activity) {
    const ActivityScope scope(&clock, activity);
    nap();
  };
  const auto first = clock.spent();
  spend(Activity::data);
  const auto second = clock.spent();
  spend(Activity::update);
  const auto of_first = clock.fractions_since(first), of_second = clock.fractions_since(second);
  const auto data = static_cast<std::size_t>(Activity::data),
             update = static_cast<std::size_t>(Activity::update);
  EXPECT_GT(of_first[data], 0);
  EXPECT_GT(of_first[update], 0);
  EXPECT_EQ(of_second[data], 0);
  EXPECT_GT(of_second[update], 0);
}

TEST(EpochClock, MeasuresNothingWhileItIsStopped) {
  EpochClock clock(/*is_running=*/false);
  {
    const ActivityScope scope(&clock, Activity::data);
    nap();
  }
  EXPECT_EQ(clock.spent()[static_cast<std::size_t>(Activity::data)], EpochClock::Clock::duration(0));
}

}  // namespace
}  // namespace kindling
