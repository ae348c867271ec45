// The curves of a model on its board at the end of an epoch.
#include <gtest/gtest.h>

#include "support/device_under_test.h"
#include "training/loop/small_fit.h"

namespace kindling {
namespace {

using Numbers = std::vector<double>;

// Losses of the ramp's batches {0, 1}, {2, 3}, … are 1, 5, 9, …: the weight stays 0.
class Plots : public OnDevice {
 protected:
  TrainerOptions options() const {
    return {.max_epochs = 2, .num_gpus = num_gpus_wanted(), .optimizer = sgd(0)};
  }
  void fit(const std::shared_ptr<Module>& model, TrainerOptions options) const {
    TensorData data = ramp(8, 4, 2);
    Trainer(std::move(options)).fit(model, data);
  }

  const std::shared_ptr<Slope> model_ = std::make_shared<Slope>();
};
KINDLING_RUN_ON_TRAINER_DEVICES(Plots);

TEST_P(Plots, LossesAreDrawnAsInD2l) {
  fit(model_, options());
  const Chart chart = model_->board().chart();
  EXPECT_EQ(chart.xlabel, "epoch");
  ASSERT_EQ(chart.curves.size(), 2U);
  EXPECT_EQ(chart.curves[0].label, "train_loss");  // two points an epoch, each of two batches
  EXPECT_EQ(chart.curves[0].x, (Numbers{0.125, 0.625, 1.125, 1.625}));
  EXPECT_EQ(chart.curves[0].y, (Numbers{3, 11, 3, 11}));
  EXPECT_EQ(chart.curves[1].label, "val_loss");  // one an epoch, and none of the sanity check
  EXPECT_EQ(chart.curves[1].x, (Numbers{1, 2}));
  EXPECT_EQ(chart.curves[1].y, (Numbers{3, 3}));
}

TEST_P(Plots, NumberOfPointsPerEpochIsSetByTheModel) {
  model_->plot_train_per_epoch = 4;
  model_->plot_valid_per_epoch = 0;
  fit(model_, options());
  Chart chart = model_->board().chart();
  ASSERT_EQ(chart.curves.size(), 1U);
  EXPECT_EQ(chart.curves[0].y, (Numbers{1, 5, 9, 13, 1, 5, 9, 13}));
  model_->plot_train_per_epoch = 100;  // no more than there are batches
  fit(model_, options());
  EXPECT_EQ(model_->board().chart().curves[0].y.size(), 8U);
}

// Plots something of its own in every second batch, twice in its validation.
class Plotter : public Slope {
 public:
  at::Tensor training_step(const Batch& batch) override {
    if (trainer().batch_index() % 2 == 1) plot("largest", batch[0].max(), /*train=*/true);
    return Slope::training_step(batch);
  }
  void validation_step(const Batch& batch) override { plot("largest", batch[0].max(), /*train=*/false); }
};

TEST_P(Plots, NamesOfTheUserAreLoggedAndDrawn) {
  const auto model = std::make_shared<Plotter>();
  model->plot_train_per_epoch = 4;
  const auto logger = std::make_shared<MemoryLogger>();
  TrainerOptions logged = options();
  logged.loggers = {logger};
  fit(model, logged);
  const Chart chart = model->board().chart();
  ASSERT_EQ(chart.curves.size(), 3U);
  EXPECT_EQ(chart.curves[1].label, "train_largest");
  EXPECT_EQ(chart.curves[1].x, (Numbers{0.25, 0.75, 1.25, 1.75}));
  EXPECT_EQ(chart.curves[1].y, (Numbers{3, 7, 3, 7}));
  EXPECT_EQ(chart.curves[2].label, "val_largest");
  EXPECT_EQ(chart.curves[2].y, (Numbers{2, 2}));
  EXPECT_EQ(value_of(logger->records()[0], "train_largest"), 5);
  EXPECT_EQ(value_of(logger->records()[0], "val_largest"), 2);
}

TEST_P(Plots, CustomLoopIsDrawnToo) {
  Trainer trainer(options());
  trainer.prepare_model(model_);
  for (int epoch = 0; epoch < 2; ++epoch) {
    for (const float x : {1.F, 2.F, 3.F, 4.F})
      trainer.train_step(trainer.prepare_batch({at::full({2, 1}, x), at::full({2, 1}, 2 * x)}));
    trainer.finish_epoch();
  }
  const Chart chart = model_->board().chart();
  EXPECT_EQ(chart.curves.at(0).x, (Numbers{0.125, 0.625, 1.125, 1.625}));
  EXPECT_EQ(chart.curves.at(0).y, (Numbers{3, 7, 3, 7}));
}

TEST_P(Plots, EpochThatEndsEarlyKeepsItsScale) {
  TrainerOptions stopped = options();
  stopped.max_steps = 6;
  fit(model_, stopped);
  EXPECT_EQ(model_->board().chart().curves[0].x, (Numbers{0.125, 0.625, 1.125}));
}

TEST_P(Plots, SecondFitClearsTheBoard) {
  fit(model_, options());
  const Numbers first = model_->board().chart().curves[0].x;
  fit(model_, options());
  EXPECT_EQ(model_->board().chart().curves[0].x, first);
}

TEST_P(Plots, NothingIsDrawnOutsideOfFit) {
  model_->plot("x", at::ones({}).to(device_), true);
  TensorData data = ramp(8, 4, 2);
  Trainer trainer(options());
  trainer.validate(model_, data);
  EXPECT_TRUE(model_->board().chart().curves.empty());
}

}  // namespace
}  // namespace kindling
