// Transitions between two epochs, two loops, or two fits.
#include <gtest/gtest.h>

#include "kindling/base/error.h"
#include "support/device_under_test.h"
#include "support/scratch.h"
#include "training/loop/small_fit.h"

namespace kindling {
namespace {

class EpochEdges : public OnDevice {
 protected:
  TrainerOptions options() const {
    return {.max_epochs = 2,
            .num_gpus = num_gpus_wanted(),
            .num_sanity_val_steps = 0,
            .log_every_n_steps = 1,
            .optimizer = sgd(0),
            .loggers = {logger_}};
  }
  std::vector<std::int64_t> reported_steps() const {
    std::vector<std::int64_t> steps;
    for (const Record& record : logger_->records())
      if (record.kind == Record::Kind::step) steps.push_back(record.global_step);
    return steps;
  }
  static Batch of(Trainer& trainer, std::int64_t num_samples) {
    const at::Tensor x = at::ones({num_samples, 1});
    return trainer.prepare_batch(Batch{x, 2 * x});
  }

  const std::shared_ptr<MemoryLogger> logger_ = std::make_shared<MemoryLogger>();
};
KINDLING_RUN_ON_TRAINER_DEVICES(EpochEdges);

TEST_P(EpochEdges, EachStepOfALoopWithCustomBatchesIsReportedOnce) {
  Trainer trainer(options());
  trainer.prepare_model(std::make_shared<Slope>());
  for (int epoch = 0; epoch < 2; ++epoch) {
    for (int step = 0; step < 2; ++step) trainer.train_step(of(trainer, 2));
    trainer.finish_epoch();
  }
  EXPECT_EQ(reported_steps(), (std::vector<std::int64_t>{1, 2, 3, 4}));
}

TEST_P(EpochEdges, EachStepOfAResumedLoopIsReportedOnce) {
  Trainer trainer(options());
  TensorData data = ramp(6, 0, 2);
  trainer.prepare_data(data);
  trainer.prepare_model(std::make_shared<Slope>());
  for (const Batch& batch : trainer.train_batches()) {
    trainer.train_step(batch);
    break;
  }
  for (const Batch& batch : trainer.train_batches()) trainer.train_step(batch);
  trainer.finish_epoch();
  EXPECT_EQ(reported_steps(), (std::vector<std::int64_t>{1, 2, 3}));
}

TEST_P(EpochEdges, ValueAfterTheLastStepHasTheWeightOfItsBatch) {
  Trainer trainer(options());
  trainer.prepare_model(std::make_shared<Slope>());
  trainer.log("value", 1.);
  trainer.train_step(of(trainer, 3));
  trainer.log("value", 5.);
  EXPECT_EQ(trainer.finish_epoch().at("value"), 3);  // (3·1 + 3·5) / 6
}

// It would count as an epoch of the schedule and of max_epochs, with a record that has no loss.
TEST_P(EpochEdges, FinishingWithoutAStepIsAnError) {
  Trainer trainer(options());
  trainer.prepare_model(std::make_shared<Slope>());
  const auto error_of_epoch = [&] { return error_text<Error>([&] { trainer.finish_epoch(); }); };
  const std::string expected =
      " has no training step yet; expected: at least one train_step() since the previous finish_epoch(); to "
      "measure the model without training it, call Trainer::validate()";
  EXPECT_EQ(error_of_epoch(), "Trainer::finish_epoch: epoch 1" + expected);
  trainer.log("value", 1.);
  trainer.train_step(of(trainer, 2));
  EXPECT_EQ(trainer.finish_epoch().at("value"), 1);
  EXPECT_EQ(error_of_epoch(), "Trainer::finish_epoch: epoch 2" + expected);
  EXPECT_EQ(trainer.progress().epoch, 1);
  trainer.request_stop();
  EXPECT_TRUE(trainer.finish_epoch().count("val_loss") == 0);
}

TEST_P(EpochEdges, NewDataBringsItsOwnValidation) {
  Trainer trainer(options());
  TensorData with = ramp(4, 2, 2), without = ramp(4, 0, 2);
  trainer.prepare_data(with);
  trainer.prepare_data(without);
  const auto model = std::make_shared<Slope>();
  trainer.prepare_model(model);
  EXPECT_FALSE(trainer.fit_epoch().contains("val_loss"));
  EXPECT_EQ(model->num_val_batches, 0);
}

TEST_P(EpochEdges, ReportsTheBatchesOfAValidationButNotOfTheSanityCheck) {
  class Batches : public Callback {
   public:
    void on_validation_batch_end(Trainer&, Module&, std::int64_t batch, std::int64_t num_batches) override {
      seen += std::to_string(batch) + "/" + std::to_string(num_batches) + " ";
    }
    std::string seen;
  };
  const auto batches = std::make_shared<Batches>();
  TrainerOptions made = options();
  made.max_epochs = 1;
  made.num_sanity_val_steps = 1;
  made.callbacks = {batches};
  TensorData data = ramp(4, 4, 2);
  const auto model = std::make_shared<Slope>();
  Trainer trainer(made);
  trainer.fit(model, data);
  EXPECT_EQ(model->num_val_batches, 3);
  EXPECT_EQ(batches->seen, "1/2 2/2 ");
  trainer.validate(model, data);
  EXPECT_EQ(batches->seen, "1/2 2/2 ") << "a validation outside a fit has no events";
}

TEST_P(EpochEdges, EpochThatIsFinishedAfterAStopStaysOpen) {
  class Validations : public Callback {
   public:
    void on_validation_start(Trainer&, Module&) override { ++num; }
    int num = 0;
  };
  const auto validations = std::make_shared<Validations>();
  TrainerOptions made = options();
  made.callbacks = {validations};
  Trainer trainer(made);
  TensorData data = ramp(4, 2, 2);
  const auto model = std::make_shared<Slope>();
  trainer.prepare_data(data);
  trainer.prepare_model(model);
  for (const Batch& batch : trainer.train_batches()) {
    trainer.train_step(batch);
    trainer.request_stop();
  }
  EXPECT_TRUE(trainer.finish_epoch().empty());
  EXPECT_EQ(trainer.progress().epoch, 0);  // a resumed run trains the rest of the epoch
  EXPECT_EQ(validations->num, 0);
  EXPECT_EQ(model->num_val_batches, 0);
}

TEST_P(EpochEdges, FitDoesNotMoveAUsersLoopOverTheLoader) {
  TensorData data = ramp(4, 2, 2);
  const auto loader = data.train_dataloader();
  Batch first, second;
  ASSERT_TRUE(loader->next(first));
  Trainer(options()).fit(std::make_shared<Slope>(), data);
  EXPECT_EQ(loader->next_epoch(), 0);
  ASSERT_TRUE(loader->next(second));
  EXPECT_EQ(second[0][0].item<float>(), 2);
}

}  // namespace
}  // namespace kindling
