// When a training validates and when it ends, other than by its epochs and steps.
#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <tuple>

#include "kindling/base/error.h"
#include "kindling/base/file.h"
#include "kindling/loggers/jsonl_logger.h"
#include "kindling/tensors/checkpoint_file.h"
#include "kindling/training/model_checkpoint.h"
#include "support/device_under_test.h"
#include "support/scratch.h"
#include "training/loop/resumed_fit.h"
#include "training/loop/small_fit.h"
#include "training/state/stop_consensus.h"

namespace kindling {
namespace {

// Writes down what happens: "step 3", "val 3" for a record of a validation, "epoch 1".
class ValidationDiary : public Callback {
 public:
  void on_train_batch_end(Trainer& trainer, Module&) override {
    if (trainer.progress().accumulated_batches == 0)
      entries.push_back("step " + std::to_string(trainer.progress().global_step));
  }
  void on_validation_start(Trainer&, Module&) override { ++num_validations; }
  void on_validation_record(Trainer& trainer, Module&, const Record& record) override {
    EXPECT_EQ(record.global_step, trainer.progress().global_step);
    EXPECT_NE(record.find("val_loss"), nullptr);
    EXPECT_EQ(record.find("train_loss"), nullptr);
    entries.push_back("val " + std::to_string(record.global_step));
  }
  void on_epoch_end(Trainer&, Module&, const Record& record) override {
    entries.push_back("epoch " + std::to_string(record.epoch) +
                      (record.find("val_loss") != nullptr ? "" : " without"));
  }
  std::vector<std::string> entries;
  int num_validations = 0;
};

class Stopping : public OnDevice {
 protected:
  // 7 batches an epoch.
  std::vector<std::string> entries(TrainerOptions options) {
    options.num_gpus = num_gpus_wanted();
    options.num_sanity_val_steps = 0;
    options.callbacks.push_back(diary);
    options.optimizer = sgd(0.01);
    TensorData data = ramp(14, 4, 2);
    diary->entries.clear();
    result = Trainer(options).fit(std::make_shared<Slope>(), data);
    return diary->entries;
  }
  using Entries = std::vector<std::string>;
  const std::shared_ptr<ValidationDiary> diary = std::make_shared<ValidationDiary>();
  FitResult result;
};
KINDLING_RUN_ON_TRAINER_DEVICES(Stopping);

TEST_P(Stopping, ValidatesWithinEpochs) {
  EXPECT_EQ(entries({.max_epochs = 1, .val_check_interval = 3}),
            (Entries{"step 1", "step 2", "step 3", "val 3", "step 4", "step 5", "step 6", "val 6", "step 7",
                     "epoch 1"}));
  // Half of 7 batches: the fourth is the first one after it.
  EXPECT_EQ(
      entries({.max_epochs = 1, .val_check_interval = 0.5}),
      (Entries{"step 1", "step 2", "step 3", "step 4", "val 4", "step 5", "step 6", "step 7", "epoch 1"}));
  // A fraction: a third of 7 batches.
  EXPECT_EQ(entries({.max_epochs = 1, .val_check_interval = 1. / 3}).size(), 7u + 2 + 1);
  // At the end there is one, not two; and none that max_steps makes the last of an epoch.
  EXPECT_EQ(entries({.max_epochs = 1, .val_check_interval = 7}).size(), 8u);
  EXPECT_EQ(entries({.max_steps = 3, .val_check_interval = 3}),
            (Entries{"step 1", "step 2", "step 3", "epoch 1"}));
  // Windows of two batches: the third batch is in the second step.
  EXPECT_EQ(entries({.max_epochs = 1, .accumulate_grad_batches = 2, .val_check_interval = 3}),
            (Entries{"step 1", "step 2", "val 2", "step 3", "val 3", "step 4", "epoch 1"}));
}

TEST_P(Stopping, ValidatesEveryNthEpoch) {
  EXPECT_EQ(entries({.max_epochs = 3, .limit_train_batches = 1, .check_val_every_n_epoch = 2}),
            (Entries{"step 1", "epoch 1 without", "step 2", "epoch 2", "step 3", "epoch 3 without"}));
  EXPECT_EQ(diary->num_validations, 1);
}

// A validation within an epoch does not affect training, and returns the numbers of one at that point.
TEST_P(Stopping, ValidationsWithinEpochsDoNotAffectTraining) {
  struct Outcome {
    std::shared_ptr<MemoryLogger> logger = std::make_shared<MemoryLogger>();
    StateDict end;
  };
  const auto fitted = [&](CountOrFraction interval) {
    at::manual_seed(7);
    Outcome outcome;
    Trainer trainer({.max_epochs = 4,
                     .num_gpus = num_gpus_wanted(),
                     .val_check_interval = interval,
                     .log_every_n_steps = 1,
                     .loggers = {outcome.logger}});
    NoiseImages data(58, 4, 4);
    trainer.fit(std::make_shared<Drawing>(), data);
    outcome.end = copy_to(trainer.state_dict(), cpu());
    return outcome;
  };
  const Outcome plain = fitted(1.0), often = fitted(0.2);
  expect_same_state(often.end, plain.end, "validated often");
  std::vector<Record> of_training;
  std::int64_t inside = 0;
  for (const Record& record : often.logger->records()) {
    if (record.kind == Record::Kind::validation)
      ++inside;
    else
      of_training.push_back(record);
  }
  EXPECT_EQ(inside, 4 * 4);
  expect_same_records(of_training, plain.logger->records(), "validated often");
}

// Stopped at every step, and inside of every validation.
TEST_P(Stopping, ResumesBitIdenticallyWithValidationsWithinEpochs) {
  const auto made = [&] {
    ResumedFit fit("adamw", num_gpus_wanted());
    fit.options.max_epochs = 2;
    fit.options.val_check_interval = 4;
    return fit;
  };
  const Scratch scratch(memory_folder());
  ResumedFit whole = made();
  whole.fit();
  for (std::int64_t i = 1; i <= 30 + 8 * 15; i += static_cast<std::int64_t>(place_stride())) {
    ResumedFit stopped = made(), rest = made();
    if (i <= 30)
      stopped.meddler->stop_at = i;
    else
      stopped.model->stop_at_val_batch = 2 + i - 30;
    const FitResult result = stopped.fit();
    save_checkpoint(stopped.end, scratch / "file");
    const std::string where = "stop " + std::to_string(i);
    if (result.status == FitStatus::finished) continue;
    for (const Record& record : whole.logger->records()) rest.logger->write(record);  // some of the future
    rest.fit(scratch / "file");
    expect_same_state(rest.end, whole.end, where);
    expect_same_records(rest.logger->records(), whole.logger->records(), where);
    if (HasFailure()) return;
  }
}

TEST_P(Stopping, ValidatesWithinCustomLoopsOverTrainBatches) {
  TrainerOptions options{.max_epochs = 1,
                         .num_gpus = num_gpus_wanted(),
                         .val_check_interval = 3,
                         .optimizer = sgd(0.01),
                         .callbacks = {diary}};
  Trainer trainer(options);
  TensorData data = ramp(14, 4, 2);
  trainer.prepare_data(data);
  trainer.prepare_model(std::make_shared<Slope>());
  for (const Batch& batch : trainer.train_batches()) trainer.train_step(batch);
  trainer.finish_epoch();
  EXPECT_EQ(diary->entries, (Entries{"step 1", "step 2", "step 3", "val 3", "step 4", "step 5", "step 6",
                                     "val 6", "step 7", "epoch 1"}));
}

TEST_P(Stopping, KeepsTheBestOfAllValidations) {
  // Its validation is best after the third step.
  struct Worse : Slope {
    void validation_step(const Batch&) override {
      log("val_loss", std::abs(static_cast<double>(trainer().progress().global_step) - 3));
    }
  };
  const Scratch scratch;
  TrainerOptions options{
      .max_epochs = 2,
      .num_gpus = num_gpus_wanted(),
      .val_check_interval = 3,
      .optimizer = sgd(0.01),
      .callbacks = {std::make_shared<ModelCheckpoint>(ModelCheckpointOptions{.dirpath = scratch.folder()})}};
  TensorData data = ramp(14, 4, 2);
  const FitResult result = Trainer(options).fit(std::make_shared<Worse>(), data);
  EXPECT_EQ(load_checkpoint(result.best_checkpoint).metadata.at("progress.global_step"), "3");
}

// The weights at the end are those that were validated last.
TEST_P(Stopping, MakesNoStepAfterAValidationThatStops) {
  struct AtFirst : Callback {
    void on_validation_record(Trainer& trainer, Module&, const Record&) override {
      trainer.request_stop(FitReason::early_stop);
    }
  };
  EXPECT_EQ(entries({.max_epochs = 2, .val_check_interval = 3, .callbacks = {std::make_shared<AtFirst>()}}),
            (Entries{"step 1", "step 2", "step 3", "val 3"}));
  EXPECT_EQ(result.reason, FitReason::early_stop);
}

TEST_P(Stopping, DoesNotAffectTheNextRun) {
  TensorData data = ramp(14, 4, 2);
  Trainer trainer({.max_epochs = 2, .num_gpus = num_gpus_wanted(), .min_epochs = 2, .optimizer = sgd(0.01)});
  trainer.prepare_data(data);
  trainer.prepare_model(std::make_shared<Slope>());
  trainer.request_stop(FitReason::early_stop);  // waits
  trainer.fit_epoch();
  trainer.prepare_model(std::make_shared<Slope>());
  for (int epoch = 0; epoch < 2; ++epoch) {
    EXPECT_FALSE(trainer.is_done());
    trainer.fit_epoch();
  }
  EXPECT_TRUE(trainer.is_done());
  EXPECT_EQ(trainer.progress().epoch, 2);
  EXPECT_EQ(trainer.stop_token().reason(), FitReason::finished);
}

TEST_P(Stopping, FastDevRunsAlwaysValidateOnce) {
  EXPECT_EQ(entries({.fast_dev_run = true, .val_check_interval = 10, .check_val_every_n_epoch = 5}),
            (Entries{"step 1", "epoch 1"}));
}

TEST_P(Stopping, EarlyStopsWaitForTheMinimumLength) {
  struct AtOnce : Callback {
    void on_train_batch_end(Trainer& trainer, Module&) override {
      if (trainer.progress().global_step == 1) trainer.request_stop(FitReason::early_stop);
    }
  };
  const auto stop = std::make_shared<AtOnce>();
  EXPECT_EQ(entries({.max_epochs = 5, .callbacks = {stop}}).size(), 1u);
  EXPECT_EQ(result.reason, FitReason::early_stop);
  EXPECT_EQ(entries({.max_epochs = 5, .min_steps = 4, .callbacks = {stop}}).back(), "step 4");
  EXPECT_EQ(entries({.max_epochs = 5, .min_epochs = 2, .callbacks = {stop}}).back(), "epoch 2");
  EXPECT_EQ(result.status, FitStatus::stopped);
  // A user's request does not wait.
  struct Request : AtOnce {
    void on_epoch_end(Trainer& trainer, Module&, const Record&) override { trainer.request_stop(); }
  };
  EXPECT_EQ(entries({.max_epochs = 5, .min_epochs = 4, .callbacks = {std::make_shared<Request>()}}).back(),
            "epoch 1");
  EXPECT_EQ(result.reason, FitReason::requested);
}

TEST_P(Stopping, EndsAtTheTimeLimit) {
  struct Slow : Callback {
    void on_train_batch_end(Trainer&, Module&) override {
      const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(300);
      while (std::chrono::steady_clock::now() < end) {
      }
    }
  };
  const auto slow = std::make_shared<Slow>();
  // A second is four steps of a little more than 0.3 s, or fewer where the machine is slow.
  const std::size_t steps = entries({.max_epochs = 5, .max_time = "00:00:00:01", .callbacks = {slow}}).size();
  EXPECT_GE(steps, 1u);
  EXPECT_LE(steps, 4u);
  EXPECT_EQ(result.reason, FitReason::time);
  EXPECT_EQ(result.status, FitStatus::stopped);
}

TEST(TimeLimit, CountsDaysToSeconds) {
  const auto is_over_after = [](const std::string& text, double seconds) {
    TimeLimit limit(text);
    limit.start(seconds);
    return limit.is_over();
  };
  EXPECT_TRUE(is_over_after("00:12:00:00", 12 * 3600));
  EXPECT_FALSE(is_over_after("00:12:00:00", 12 * 3600 - 10));
  EXPECT_TRUE(is_over_after("2:03:04:05", 2 * 86400 + 3 * 3600 + 4 * 60 + 5));
  EXPECT_FALSE(is_over_after("2:03:04:05", 2 * 86400 + 3 * 3600 + 4 * 60 - 5));
  EXPECT_FALSE(is_over_after("", 1e12));
  for (const std::string text : {"12:00:00", "00:24:00:00", "00:00:60:00", "00:00:00:60", "00:00:00:00", "x",
                                 "1:2:3:4:5", "-1:00:00:00", "0:0:0:1 ", ":::"})
    EXPECT_NE(error_text<ConfigError>([&] { Trainer({.max_time = text}); }).find("days:hours"),
              std::string::npos)
        << text;
}

// The time before a stop counts.
TEST_P(Stopping, TimeContinuesAfterAResume) {
  TrainerOptions options{.max_epochs = 1, .num_gpus = num_gpus_wanted(), .max_time = "00:01:00:00"};
  TensorData data = ramp(14, 4, 2);
  Trainer first(options), second(options);
  first.prepare_data(data);
  first.prepare_model(std::make_shared<Slope>());
  StateDict state = first.state_dict();
  ASSERT_TRUE(state.metadata.contains("spent_ms"));
  state.metadata["spent_ms"] = "3600000";
  second.prepare_data(data);
  second.prepare_model(std::make_shared<Slope>());
  EXPECT_FALSE(second.is_done());
  second.load_state_dict(state);
  EXPECT_TRUE(second.is_done());
}

TEST_P(Stopping, OverfitsTheSameBatchesInEveryEpoch) {
  class Seen : public Slope {
   public:
    at::Tensor training_step(const Batch& batch) override {
      const at::Tensor x = batch[0].cpu();
      for (std::int64_t i = 0; i < x.size(0); ++i) train.push_back(x[i].item<double>());
      return Slope::training_step(batch);
    }
    void validation_step(const Batch& batch) override {
      ++num_val;
      Slope::validation_step(batch);
    }
    std::vector<double> train;
    int num_val = 0;
  };
  const at::Tensor x = at::arange(20, at::kFloat).unsqueeze(1);
  for (const CountOrFraction part : {CountOrFraction(2), CountOrFraction(0.4)}) {
    TensorData data({x, 2 * x}, {x, 2 * x}, {.batch_size = 4, .shuffle = true});
    const auto model = std::make_shared<Seen>();
    Trainer({.max_epochs = 2,
             .num_gpus = num_gpus_wanted(),
             .overfit_batches = part,
             .num_sanity_val_steps = 0,
             .optimizer = sgd(0.001)})
        .fit(model, data);
    EXPECT_EQ(model->train, (std::vector<double>{0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3, 4, 5, 6, 7}));
    EXPECT_EQ(model->num_val, 4);
  }
}

TEST(StoppingOptions, AreChecked) {
  const auto text_of = [](TrainerOptions options) {
    return error_text<ConfigError>([&] { Trainer{std::move(options)}; });
  };
  EXPECT_NE(text_of({.val_check_interval = 0.0}).find("val_check_interval is 0.0"), std::string::npos);
  EXPECT_NE(text_of({.val_check_interval = 1.5}).find("a fraction > 0 and <= 1.0 or an integer >= 1"),
            std::string::npos);
  EXPECT_NE(text_of({.val_check_interval = 0}).find("val_check_interval is 0"), std::string::npos);
  EXPECT_NE(text_of({.overfit_batches = 2.0}).find("overfit_batches"), std::string::npos);
  EXPECT_NE(text_of({.check_val_every_n_epoch = 0}).find("check_val_every_n_epoch"), std::string::npos);
  EXPECT_NE(text_of({.min_epochs = -1}).find("min_epochs"), std::string::npos);
  EXPECT_NE(text_of({.min_steps = -1}).find("min_steps"), std::string::npos);
  TensorData data = ramp(14, 4, 2);
  const std::string text = error_text<ConfigError>(
      [&] { Trainer({.max_epochs = 1, .val_check_interval = 8}).fit(std::make_shared<Slope>(), data); });
  EXPECT_NE(text.find("val_check_interval = 8, but an epoch has 7 training batches"), std::string::npos)
      << text;
}

// Lines of validations are distinguished from those of steps and epochs.
TEST(JsonlLogger, CutsValidationsBack) {
  const Scratch scratch;
  const auto lines_after = [&](const Progress& at) {
    JsonlLogger logger(scratch / "metrics.jsonl");
    using Kind = Record::Kind;
    std::int64_t number = 0;
    for (const auto& [kind, step, epoch] : std::vector<std::tuple<Kind, int, int>>{{Kind::step, 1, 1},
                                                                                   {Kind::step, 2, 1},
                                                                                   {Kind::validation, 2, 1},
                                                                                   {Kind::step, 3, 1},
                                                                                   {Kind::epoch, 3, 1}}) {
      const bool is_step = kind == Kind::step;
      const Record record{.kind = kind,
                          .global_step = step,
                          .epoch = epoch,
                          .values = {{is_step ? "train_loss_step" : "val_loss", 1}}};
      logger.write(record);
      number += is_beyond(record, at) ? 0 : 1;
    }
    logger.resume_at(at);
    const std::string text = read_file(scratch / "metrics.jsonl", 1 << 20);
    EXPECT_EQ(std::ranges::count(text, '\n'), number);
    std::filesystem::remove(scratch / "metrics.jsonl");
    return number;
  };
  EXPECT_EQ(lines_after({.epoch = 0, .batch = 1, .global_step = 1}), 1);
  EXPECT_EQ(lines_after({.epoch = 0, .batch = 2, .global_step = 2, .phase = Phase::validation}), 2);
  EXPECT_EQ(lines_after({.epoch = 0, .batch = 2, .global_step = 2}), 3);
  EXPECT_EQ(lines_after({.epoch = 1, .batch = 0, .global_step = 3}), 5);
}

}  // namespace
}  // namespace kindling
