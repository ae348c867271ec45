// Several batches make one optimizer step, with the gradient of one large batch.
#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "kindling/base/error.h"
#include "kindling/checkpoint/checkpoint_folder.h"
#include "kindling/models/mlp.h"
#include "kindling/optim/adam.h"
#include "kindling/optim/schedule.h"
#include "kindling/tensors/checkpoint_file.h"
#include "kindling/training/model_checkpoint.h"
#include "support/device_under_test.h"
#include "support/scratch.h"
#include "support/tensor_matchers.h"
#include "training/loop/resumed_fit.h"
#include "training/loop/small_fit.h"
#include "training/step/nonfinite_fit.h"

namespace kindling {
namespace {

class Accumulation : public OnDevice {
 protected:
  TrainerOptions options(std::int64_t accumulate_grad_batches) const {
    return {.max_epochs = 2,
            .num_gpus = num_gpus_wanted(),
            .accumulate_grad_batches = accumulate_grad_batches,
            .num_sanity_val_steps = 0,
            .log_every_n_steps = 1};
  }
};
KINDLING_RUN_ON_TRAINER_DEVICES(Accumulation);

struct AccumulatedRun {
  std::shared_ptr<Mlp> model = [] {
    at::manual_seed(3);
    return std::make_shared<Mlp>(MlpOptions{.hidden = {16}});
  }();
  std::shared_ptr<MemoryLogger> logger = std::make_shared<MemoryLogger>();
  FitResult result;

  AccumulatedRun(TrainerOptions options, std::int64_t batch_size, std::int64_t num_samples = 22) {
    const at::Tensor images =
        NoiseImages(num_samples, 10, 1).train_dataloader()->dataset().slice(0, num_samples)[0];
    const at::Tensor labels = at::arange(num_samples).remainder(10);
    TensorData data({images.to(at::kFloat) / 255, labels}, {}, {.batch_size = batch_size, .shuffle = false});
    options.loggers = {logger};
    result = Trainer(options).fit(model, data);
  }
  std::vector<Record> steps() const {
    std::vector<Record> steps;
    for (const Record& record : logger->records())
      if (record.kind == Record::Kind::step) steps.push_back(record);
    return steps;
  }
};

// Sums of the same numbers in another order: the last bits of float32, which a few steps let grow.
constexpr double kTolerance = 1e-6;

void expect_close_weights(const Module& actual, const Module& expected) {
  const auto found = actual.parameters(), wanted = expected.parameters();
  for (std::size_t i = 0; i < wanted.size(); ++i)
    EXPECT_TRUE(close(found[i].detach().cpu(), wanted[i].detach().cpu(), kTolerance)) << i;
}

// Windows of 4 + 4 + 4 and of 4 + 4 + 2 samples against batches of 12 and of 10.
TEST_P(Accumulation, StepsLikeOneLargeBatch) {
  for (const double clip : {0., 0.05}) {
    TrainerOptions windows = options(3), large = options(1);
    windows.gradient_clip_val = large.gradient_clip_val = clip;
    const AccumulatedRun run(windows, 4), expected(large, 12);
    EXPECT_EQ(run.result.progress.global_step, 4);
    expect_close_weights(*run.model, *expected.model);
    const auto steps = run.steps(), wanted = expected.steps();
    ASSERT_EQ(steps.size(), wanted.size());
    for (std::size_t i = 0; i < steps.size(); ++i) {
      EXPECT_EQ(steps[i].global_step, wanted[i].global_step);
      EXPECT_EQ(names_of(steps[i]), names_of(wanted[i]));
      for (const auto& [name, value] : wanted[i].values)
        EXPECT_NEAR(value_of(steps[i], name), value, 1e-6 * std::abs(value)) << name << ", step " << i + 1;
    }
    for (const char* name : {"train_loss", "train_acc", "lr"})
      EXPECT_NEAR(value_of(run.logger->records().back(), name),
                  value_of(expected.logger->records().back(), name), 1e-6)
          << name;
  }
}

// Sizes that nobody knows before, and a last window that is not full.
TEST_P(Accumulation, WeightsUnevenBatchesOfCustomLoops) {
  const at::Tensor x = at::arange(1, 12, at::kFloat).unsqueeze(1);
  const auto model = std::make_shared<Slope>();
  TrainerOptions made = options(3);
  made.optimizer = sgd(0.01);
  const auto logger = std::make_shared<MemoryLogger>();
  made.loggers = {logger};
  Trainer trainer(made);
  trainer.prepare_model(model);
  std::int64_t first = 0;
  double weight = 0;
  const auto train = [&](std::int64_t samples) {
    const at::Tensor part = x.narrow(0, first, samples);
    trainer.train_step(trainer.prepare_batch(Batch{part, 2 * part}));
    first += samples;
  };
  const auto expect_weight = [&](std::int64_t begin, std::int64_t end) {
    weight += 0.01 * x.narrow(0, begin, end - begin).mean().item<double>();
    EXPECT_NEAR(model->weight.item<double>(), weight, kTolerance);
  };
  train(3);
  EXPECT_EQ(trainer.progress().accumulated_batches, 1);
  train(1);
  EXPECT_EQ(model->weight.item<double>(), 0);
  EXPECT_EQ(trainer.progress().global_step, 0);
  train(4);
  EXPECT_EQ(trainer.progress().accumulated_batches, 0);
  EXPECT_EQ(trainer.progress().global_step, 1);
  expect_weight(0, 8);
  train(1);
  train(2);
  const double loss = (2 - weight) * x.narrow(0, 8, 3).mean().item<double>();
  trainer.log("late", 5.0);
  const Metrics values = trainer.finish_epoch();
  EXPECT_EQ(trainer.progress().global_step, 2);
  expect_weight(8, 11);
  EXPECT_EQ(values.at("late"), 5);
  // The mean over all samples: the first eight at weight 0.
  EXPECT_NEAR(values.at("train_loss"), (2 * 36 + 3 * loss) / 11, 1e-5);
  EXPECT_NEAR(value_of(logger->records()[1], "train_loss_step"), loss, 1e-5);
  EXPECT_EQ(logger->records().size(), 3u);
}

TEST_P(Accumulation, StopsAndSavesBetweenSteps) {
  struct Stopper : Callback {
    void on_train_batch_end(Trainer& trainer, Module&) override {
      if (trainer.progress().batch == 2) trainer.request_stop();
      if (trainer.progress().accumulated_batches > 0) {
        EXPECT_THROW(trainer.state_dict(), Error);
      }
    }
  };
  TrainerOptions made = options(3);
  made.callbacks = {std::make_shared<Stopper>()};
  const AccumulatedRun run(made, 4);
  EXPECT_EQ(run.result.status, FitStatus::stopped);
  EXPECT_EQ(run.result.progress.batch, 3);
  EXPECT_EQ(run.result.progress.global_step, 1);
}

TEST_P(Accumulation, CountsStepsForLimitsSchedulesAndCheckpoints) {
  const Scratch scratch;
  TrainerOptions made = options(3);
  made.max_epochs = 5;
  made.max_steps = 7;
  made.schedule = linear_schedule({.start_factor = 1, .end_factor = 0});
  made.callbacks = {std::make_shared<ModelCheckpoint>(
      ModelCheckpointOptions{.dirpath = scratch.folder(), .every_n_steps = 1, .keep_last = 100})};
  const AccumulatedRun run(made, 4);
  EXPECT_EQ(run.result.progress.global_step, 7);
  EXPECT_EQ(run.result.progress.epoch, 4);
  const auto steps = run.steps();
  ASSERT_EQ(steps.size(), 7u);
  for (std::size_t i = 0; i < steps.size(); ++i)
    EXPECT_NEAR(value_of(steps[i], "lr"), 1e-3 * (1 - static_cast<double>(i) / 7), 1e-12) << i;
  EXPECT_EQ(list_checkpoints(scratch.folder()).size(), 7u);
}

// An epoch's steps are its windows, the short one included.
TEST_P(Accumulation, GivesEpochSchedulesWholeEpochs) {
  TrainerOptions made = options(4);
  made.schedule_interval = ScheduleInterval::epoch;
  made.schedule = step_schedule({.step_size = 1, .gamma = 0.5});
  const AccumulatedRun run(made, 4);  // 6 batches: 2 steps
  const auto steps = run.steps();
  ASSERT_EQ(steps.size(), 4u);
  for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(value_of(steps[i], "lr"), i < 2 ? 1e-3 : 5e-4) << i;
}

// A batch that is not finite spoils its window and nothing else.
TEST_P(Accumulation, SkipsAPoisonedWindow) {
  for (const Poison poison : kPoisons) {
    TrainerOptions made = options(4);
    made.max_epochs = 1;
    made.on_nonfinite = "skip";
    const auto model = std::make_shared<PoisonNet>();
    const auto logger = std::make_shared<MemoryLogger>();
    made.loggers = {logger};
    TensorData data = poisoned_data(poison, /*k=*/6);
    Trainer(made).fit(model, data);
    EXPECT_EQ(value_of(logger->records().back(), "skipped_steps"), 1);
    EXPECT_TRUE(std::isfinite(value_of(logger->records().back(), "train_loss")));
    for (const at::Tensor& parameter : model->parameters())
      EXPECT_TRUE(parameter.isfinite().all().item<bool>());

    made.on_nonfinite = "stop";
    made.loggers.clear();
    TensorData again = poisoned_data(poison, 6);
    EXPECT_EQ(Trainer(made).fit(std::make_shared<PoisonNet>(), again).diverged_step, 2);
  }
}

TEST_P(Accumulation, ResumesBitIdenticallyAfterAStopAtAnyStep) {
  const auto made = [&] {
    ResumedFit fit("adamw", num_gpus_wanted());
    fit.options.accumulate_grad_batches = 4;  // 4, 4, 4, 3
    return fit;
  };
  const Scratch scratch(memory_folder());
  ResumedFit whole = made();
  EXPECT_EQ(whole.fit().progress.global_step, 16);
  for (std::int64_t step = 1; step < 16; ++step) {
    ResumedFit stopped = made(), rest = made();
    stopped.meddler->stop_at = step;
    stopped.fit();
    save_checkpoint(stopped.end, scratch / "file");
    for (const Record& record : stopped.logger->records()) rest.logger->write(record);
    rest.fit(scratch / "file");
    const std::string where = "step " + std::to_string(step);
    expect_same_state(rest.end, whole.end, where);
    expect_same_records(rest.logger->records(), whole.logger->records(), where);
  }
}

// What a training_step throws must not leave half a window behind.
TEST_P(Accumulation, RestartsAWindowAfterAnError) {
  struct Throwing : Slope {
    at::Tensor training_step(const Batch& batch) override {
      if (throws) throw Error({.place = "here", .found = "an error"});
      return Slope::training_step(batch);
    }
    bool throws = false;
  };
  const auto model = std::make_shared<Throwing>();
  TrainerOptions made = options(2);
  made.optimizer = sgd(0.01);
  Trainer trainer(made);
  trainer.prepare_model(model);
  const auto train = [&](double x) {
    const at::Tensor input = at::full({1, 1}, x);
    trainer.train_step(trainer.prepare_batch(Batch{input, 2 * input}));
  };
  train(100);
  model->throws = true;
  EXPECT_THROW(train(1), Error);
  model->throws = false;
  train(1);
  EXPECT_EQ(trainer.progress().global_step, 0);
  train(3);
  EXPECT_EQ(trainer.progress().global_step, 1);
  EXPECT_NEAR(model->weight.item<double>(), 0.02, kTolerance);
}

TEST(AccumulationOptions, AreChecked) {
  const std::string text = error_text<ConfigError>([] { Trainer({.accumulate_grad_batches = 0}); });
  EXPECT_NE(text.find("accumulate_grad_batches"), std::string::npos) << text;
}

TEST_P(Accumulation, StateInsideAWindowIsRefusedByName) {
  Trainer trainer(options(4));
  trainer.prepare_model(std::make_shared<Slope>());
  const Batch batch = trainer.prepare_batch({at::ones({1, 1}), at::ones({1, 1})});
  for (int i = 0; i < 3; ++i) trainer.train_step(batch);
  EXPECT_EQ(error_text<Error>([&] { (void)trainer.state_dict(); }),
            "the run: an accumulation window is open: the next step has the gradients of 3 batches so far; "
            "expected: a save between two steps; save when progress().accumulated_batches is 0");
  trainer.train_step(batch);
  EXPECT_EQ(trainer.state_dict().metadata.at("progress.global_step"), "1");
}

}  // namespace
}  // namespace kindling
