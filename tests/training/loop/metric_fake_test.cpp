// The cost of metrics and previews on a GPU, counted by the device.
#include <gtest/gtest.h>

#include <chrono>

#include "fake_accelerator.h"
#include "training/loop/confusion.h"
#include "training/loop/measured_fit.h"

namespace kindling {
namespace {

TEST(FakeMetrics, EpochIsOneCopyToTheHost) {
  class Copies : public Callback {
   public:
    void on_train_epoch_start(Trainer&, Module&) override { fake::reset_counts(); }
    void on_epoch_end(Trainer&, Module&, const Record&) override {
      of_epochs.push_back(fake::counts().device_to_host_copies);
      waits.push_back(fake::counts().host_waits());
    }
    std::vector<std::int64_t> of_epochs, waits;
  };
  for (const bool with_validation : {false, true}) {
    const auto copies = std::make_shared<Copies>();
    TensorData data = eleven_answers(with_validation);
    Trainer({.max_epochs = 2, .num_gpus = 1, .callbacks = {copies}}).fit(std::make_shared<Echo>(), data);
    const std::int64_t expected = with_validation ? 2 : 1;
    EXPECT_EQ(copies->of_epochs, (std::vector<std::int64_t>{expected, expected}));
    EXPECT_EQ(copies->waits, (std::vector<std::int64_t>{expected, expected}));
  }
}

// Every kind of metric, weights and skipped steps included.
TEST(FakeMetrics, ShippedMetricsNeitherWaitNorCopyInSteps) {
  class Weighing : public Passing {
   public:
    at::Tensor training_step(const Batch& batch) override {
      measure(Stage::train, batch[0], batch[1], batch[2]);
      return loss(forward(batch[0]), batch[1]);
    }
  };
  class Numbers : public Passing {
   public:
    Numbers() {
      for (const std::string name : {"mse", "mae", "rmse", "r2", "r2_per_output"})
        add_metric(name, shipped_metric(name));
    }
  };
  const auto classes = std::make_shared<Weighing>();
  measure_classes(*classes);
  const std::vector<std::pair<std::shared_ptr<Module>, Batch>> models{
      {classes, {some_answers().outputs, some_answers().labels, some_answers().weights}},
      {std::make_shared<Numbers>(), {at::ones({4, 3}), at::zeros({4, 3})}}};
  for (const auto& [model, answers] : models) {
    Trainer trainer({.max_epochs = 1, .num_gpus = 1, .on_nonfinite = "skip", .optimizer = sgd(0.1)});
    trainer.prepare_model(model);
    const Batch batch = trainer.prepare_batch(answers);
    fake::reset_counts();
    for (int step = 0; step < 5; ++step) trainer.train_step(batch);
    const fake::Counts of_steps = fake::counts();
    EXPECT_EQ(of_steps.host_waits(), 0);
    EXPECT_EQ(of_steps.device_to_host_copies, 0);
    EXPECT_EQ(of_steps.host_to_device_copies, 0);
    trainer.finish_epoch();
    // The log, and the areas of all samples.
    EXPECT_EQ(fake::counts().device_to_host_copies, model == classes ? 2 : 1);
  }
}

TEST(FakePreview, CopiesAtMostOnceASecond) {
  Trainer trainer({.max_epochs = 1, .num_gpus = 1, .optimizer = sgd(0.125)});
  trainer.prepare_model(std::make_shared<Slope>());
  const Batch batch = trainer.prepare_batch(Batch{at::ones({2, 1}), at::ones({2, 1})});
  trainer.train_step(batch);
  fake::reset_counts();
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(trainer.preview(), (NamedValues{{"train_loss", 1}}));
  trainer.train_step(batch);
  const NamedValues second = trainer.preview();
  if (std::chrono::steady_clock::now() - start < std::chrono::seconds(1)) {
    EXPECT_EQ(second, (NamedValues{{"train_loss", 1}})) << "of the first step";
    EXPECT_EQ(fake::counts().device_to_host_copies, 1);
  }
  EXPECT_EQ(fake::counts().host_waits(), 0);
}

TEST(FakePreview, StartsEmptyInANewRun) {
  Trainer trainer({.max_epochs = 1, .num_gpus = 1});
  trainer.prepare_model(std::make_shared<Slope>());
  trainer.train_step(trainer.prepare_batch(Batch{at::ones({2, 1}), at::ones({2, 1})}));
  trainer.finish_epoch();
  EXPECT_FALSE(trainer.preview().empty());
  trainer.prepare_model(std::make_shared<Slope>());
  EXPECT_TRUE(trainer.preview().empty());
}

}  // namespace
}  // namespace kindling
