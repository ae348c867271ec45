// Evaluations within a custom loop over the same loader, and abandoned loops.
#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include "support/device_under_test.h"
#include "support/tensor_matchers.h"
#include "training/loop/small_fit.h"

namespace kindling {
namespace {

// One loader for everything.
class OneForAll : public TensorData {
 public:
  using TensorData::TensorData;
  std::shared_ptr<DataLoader> val_dataloader() override { return train_dataloader(); }
};

// The values 0…9 in batches of 4, in the order of seed 3.
class NestedLoops : public OnDevice {
 protected:
  static OneForAll ten_samples() {
    const at::Tensor x = at::arange(10, at::kFloat).unsqueeze(1);
    return {{x, 2 * x}, {}, {.batch_size = 4, .seed = 3}};
  }
  static at::Tensor order_of(std::int64_t epoch) {
    DataLoader loader(std::make_shared<TensorDataset>(std::vector<at::Tensor>{at::arange(10, at::kFloat)}),
                      {.batch_size = 10, .shuffle = true, .seed = 3});
    Batch batch;
    loader.start_epoch(epoch);
    loader.next(batch);
    return batch[0].clone();
  }
  // The weight stays 0: a loss is the mean of 2·x.
  TrainerOptions options() const {
    return {.max_epochs = 2, .num_gpus = num_gpus_wanted(), .num_sanity_val_steps = 0, .optimizer = sgd(0)};
  }
};
KINDLING_RUN_ON_TRAINER_DEVICES(NestedLoops);

TEST_P(NestedLoops, EvaluationsDoNotMoveTheLoop) {
  OneForAll data = ten_samples();
  const auto model = std::make_shared<Slope>();
  Trainer trainer(options());
  trainer.prepare_data(data);
  trainer.prepare_model(model);
  for (std::int64_t epoch = 0; !trainer.is_done(); ++epoch) {
    std::vector<at::Tensor> seen;
    for (const Batch& batch : trainer.train_batches()) {
      EXPECT_EQ(trainer.validate(model, data).at("val_loss"), 9);
      EXPECT_EQ(trainer.test(model, data).at("test_loss"), 9);
      EXPECT_EQ(trainer.predict(model, data).size(0), 10);
      seen.push_back(batch[0].flatten().cpu());
      trainer.train_step(batch);
      EXPECT_EQ(trainer.progress().batch, static_cast<std::int64_t>(seen.size()));
    }
    EXPECT_TRUE(same(at::cat(seen), order_of(epoch)));
    const Metrics values = trainer.finish_epoch();
    EXPECT_EQ(values.at("train_loss"), 9) << "of the loop's own steps";
    EXPECT_EQ(values.at("val_loss"), 9);
  }
  EXPECT_EQ(static_cast<Progress>(trainer.progress()), (Progress{.epoch = 2, .batch = 0, .global_step = 6}));
}

// Notes every batch that it is trained on.
class Noting : public Slope {
 public:
  at::Tensor training_step(const Batch& batch) override {
    seen.push_back(batch[0].flatten().cpu());
    return Slope::training_step(batch);
  }
  std::vector<at::Tensor> seen;
};

TEST_P(NestedLoops, AbandonedLoopDoesNotAffectTheNextFit) {
  OneForAll data = ten_samples();
  const auto logger = std::make_shared<MemoryLogger>();
  TrainerOptions made = options();
  made.loggers = {logger};
  Trainer trainer(made);
  trainer.prepare_data(data);
  trainer.prepare_model(std::make_shared<Slope>());
  for (const Batch& batch : trainer.train_batches()) {
    trainer.log("left", 1.);
    trainer.train_step(batch);
    if (trainer.progress().batch == 2) break;
  }
  trainer.log("marked", 1.);
  const auto model = std::make_shared<Noting>();
  const FitResult result = trainer.fit(model, data);
  EXPECT_EQ(result.progress, (Progress{.epoch = 2, .batch = 0, .global_step = 6}));
  EXPECT_TRUE(same(at::cat(model->seen), at::cat({order_of(0), order_of(1)})));
  ASSERT_EQ(logger->records().size(), 2U);
  for (const Record& record : logger->records()) {
    EXPECT_EQ(record.global_step, 3 * record.epoch);
    EXPECT_EQ(value_of(record, "train_loss"), 9);
    EXPECT_EQ(record.find("left"), nullptr);
    EXPECT_EQ(record.find("marked"), nullptr);
  }
}

TEST_P(NestedLoops, NextLoopContinuesAfterABreak) {
  OneForAll data = ten_samples();
  Trainer trainer(options());
  trainer.prepare_data(data);
  trainer.prepare_model(std::make_shared<Slope>());
  for (const Batch& batch : trainer.train_batches()) {
    trainer.train_step(batch);
    break;
  }
  std::vector<at::Tensor> rest;
  for (const Batch& batch : trainer.train_batches()) {
    rest.push_back(batch[0].flatten().cpu());
    trainer.train_step(batch);
  }
  EXPECT_TRUE(same(at::cat(rest), order_of(0).narrow(0, 4, 6)));
  EXPECT_EQ(trainer.finish_epoch().at("train_loss"), 9);
  EXPECT_EQ(trainer.progress().global_step, 3);
}

}  // namespace
}  // namespace kindling
