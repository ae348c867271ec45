// Fits that go back to a checkpoint after a spike and pass over its batches.
#include <algorithm>
#include <filesystem>
#include <fstream>

#include "kindling/base/error.h"
#include "kindling/checkpoint/checkpoint_folder.h"
#include "kindling/loggers/jsonl_logger.h"
#include "kindling/tensors/checkpoint_file.h"
#include "kindling/training/exponential_moving_average.h"
#include "kindling/training/model_checkpoint.h"
#include "kindling/training/replay.h"
#include "support/device_under_test.h"
#include "support/rank_threads.h"
#include "support/scratch.h"
#include "training/loop/resumed_fit.h"
#include "training/state/passed_batches.h"
#include "training/step/spike_fit.h"

namespace kindling {
namespace {

// Keeps the rollbacks of a fit.
struct RollbackKeeper : Callback {
  void on_resume(Trainer&, Module&) override { ++num_resumes; }
  void on_rollback(Trainer& trainer, Module&, const Rollback& rollback) override {
    EXPECT_EQ(trainer.progress().global_step, rollback.global_step);
    rollbacks.push_back(rollback);
  }
  std::vector<Rollback> rollbacks{};
  int num_resumes = 0;
};

class Rollbacks : public OnDevice {
 protected:
  TrainerOptions options(const std::string& action, std::int64_t max_epochs = 2) const {
    TrainerOptions options{.max_epochs = max_epochs, .num_gpus = num_gpus_wanted()};
    if (!action.empty()) options.on_spike = SpikeOptions{.window = 20, .action = action};
    return options;
  }
  // With checkpoints every so many steps, 0: none, in a folder of the scratch directory.
  TrainerOptions rolling(std::int64_t every, std::int64_t max_epochs = 2) {
    TrainerOptions rolling = options("rollback", max_epochs);
    keeper_ = std::make_shared<RollbackKeeper>();
    rolling.callbacks = {keeper_};
    if (every > 0) rolling.callbacks.push_back(checkpoints(every));
    return rolling;
  }
  std::shared_ptr<ModelCheckpoint> checkpoints(std::int64_t every) {
    std::filesystem::remove_all(run_ / "checkpoints");
    return std::make_shared<ModelCheckpoint>(ModelCheckpointOptions{
        .dirpath = run_ / "checkpoints", .every_n_epochs = 0, .every_n_steps = every, .keep_last = 100});
  }

  const Scratch run_{memory_folder()};
  std::shared_ptr<RollbackKeeper> keeper_;
};
KINDLING_RUN_ON_TRAINER_DEVICES(Rollbacks);

// The values of records, without those that a run without the batches cannot have.
NamedValues trained_numbers(const Record& record) {
  NamedValues numbers = numbers_of(record);
  std::erase_if(numbers, [](const auto& number) { return number.first == "passed_batches"; });
  return numbers;
}

void expect_same_run(const SpikeRun& run, const SpikeRun& expected, const std::string& where) {
  EXPECT_EQ(run.result.status, FitStatus::finished) << where;
  EXPECT_TRUE(same_weights(run, expected)) << where;
  EXPECT_EQ(run.result.progress.global_step, expected.result.progress.global_step) << where;
  ASSERT_GE(run.keeper->records.size(), expected.keeper->records.size()) << where;
  const std::size_t repeated = run.keeper->records.size() - expected.keeper->records.size();
  for (std::size_t i = 0; i < expected.keeper->records.size(); ++i)
    EXPECT_EQ(trained_numbers(run.keeper->records[repeated + i]),
              trained_numbers(expected.keeper->records[i]))
        << where;
}

// A run whose data lack the batches has the same weights, optimizer state and records.
TEST_P(Rollbacks, TrainAsIfTheBatchesWereMissing) {
  for (const std::int64_t every : {0, 1, 4, 13, 100})
    for (const std::int64_t records : {0, 5}) {
      TrainerOptions of_run = rolling(every);
      of_run.log_every_n_steps = records;
      const HeardWarnings warnings;
      const SpikeRun run = spike_run(of_run, {.spikes = {14}}),
                     expected = spike_run(options(""), {.without = {14}});
      const std::string where = std::to_string(every) + ", " + std::to_string(records);
      expect_same_run(run, expected, where);
      EXPECT_EQ(value_of(run.keeper->records.back(), "passed_batches"), 1) << where;
      EXPECT_EQ(run.keeper->records.back().find("spikes"), nullptr) << where;
      EXPECT_EQ(keeper_->num_resumes, 2) << where;
      ASSERT_EQ(keeper_->rollbacks.size(), 2U) << where;
      const Rollback first = keeper_->rollbacks[0], second = keeper_->rollbacks[1];
      EXPECT_EQ(first.spike_step, 14) << where;
      EXPECT_EQ(first.global_step, every == 0 || every == 100 ? 0 : 13 / every * every) << where;
      EXPECT_EQ(first.passed.epoch, 0) << where;
      EXPECT_EQ(first.passed.batch, 13) << where;
      EXPECT_EQ(second.spike_step, 43) << where;  // after 29 and 13 steps
      EXPECT_EQ(second.passed.epoch, 1) << where;
      EXPECT_EQ(second.passed.batch, 13) << where;
      EXPECT_TRUE(warnings.has("the loss of step 14 had a spike"));
      EXPECT_TRUE(warnings.has("passes over batch 13 of epoch 1"));
    }
}

TEST_P(Rollbacks, PassOverAllBatchesOfAStep) {
  TrainerOptions of_run = rolling(0), plain = options("");
  of_run.accumulate_grad_batches = plain.accumulate_grad_batches = 2;
  const SpikeRun run = spike_run(of_run, {.spikes = {25}}),
                 expected = spike_run(plain, {.without = {25, 26}});
  expect_same_run(run, expected, "");
  EXPECT_EQ(value_of(run.keeper->records.back(), "passed_batches"), 2);
}

// Also at the end of an epoch, where the last step may have fewer batches.
TEST_P(Rollbacks, PassOverTheLastBatches) {
  TrainerOptions of_run = rolling(0), plain = options("");
  of_run.accumulate_grad_batches = plain.accumulate_grad_batches = 29;
  of_run.on_spike->window = 8;
  of_run.max_epochs = plain.max_epochs = 6;
  const SpikeRun run = spike_run(of_run, {.spikes = {30}}),
                 expected = spike_run(options("", 2), {.without = {30}});
  EXPECT_EQ(run.result.status, FitStatus::finished);
  const SpikeRun last = spike_run(rolling(7), {.spikes = {30}});
  expect_same_run(last, expected, "last");
}

TEST_P(Rollbacks, TakeStateOfCallbacksBack) {
  TrainerOptions of_run = rolling(10), plain = options("");
  const auto average = [] {
    return std::make_shared<ExponentialMovingAverage>(ExponentialMovingAverageOptions{.decay = 0.9});
  };
  of_run.callbacks.push_back(average());
  plain.callbacks.push_back(average());
  expect_same_run(spike_run(of_run, {.spikes = {12, 28}}), spike_run(plain, {.without = {12, 28}}), "ema");
}

TEST_P(Rollbacks, AreTheSameInCapturedSteps) {
  for (const char* mode : {"off", "on"}) {
    TrainerOptions of_run = rolling(6);
    of_run.step_graph = mode;
    expect_same_run(spike_run(of_run, {.spikes = {20}}), spike_run(options(""), {.without = {20}}), mode);
  }
}

TEST_P(Rollbacks, EndAfterTheThirdOneToACheckpoint) {
  const SpikeRun run = spike_run(rolling(0, 1), {.spikes = {14, 17, 20, 23}});
  EXPECT_EQ(keeper_->rollbacks.size(), 3U);
  EXPECT_EQ(run.result.status, FitStatus::diverged);
  EXPECT_EQ(run.result.diverged_step, 20);  // after 13 + 2 + 2 + 2 steps
  EXPECT_NE(run.result.diverged_reason.find("had gone back to its start 3 times"), std::string::npos)
      << run.result.diverged_reason;
  const SpikeRun saved = spike_run(rolling(3, 1), {.spikes = {14, 17, 20, 23}});
  expect_same_run(saved, spike_run(options("", 1), {.without = {14, 17, 20, 23}}), "saved");
}

// A spike counts if it comes before a step that is not finite; later ones are computed from weights that the
// run has stopped to change.
TEST_P(Rollbacks, ComeBeforeALaterStepThatIsNotFinite) {
  for (const std::int64_t records : {0, 1, 7}) {
    TrainerOptions of_run = rolling(0, 1), plain = options("", 1);
    of_run.log_every_n_steps = records;
    const SpikeRun run = spike_run(of_run, {.spikes = {14}, .nans = {15}}),
                   expected = spike_run(plain, {.nans = {14}, .without = {15}});
    EXPECT_EQ(keeper_->rollbacks.size(), 1U);
    EXPECT_EQ(run.result.diverged_step, 14) << records;  // the next batch, again as step 14
    EXPECT_TRUE(same_weights(run, expected)) << records;
    const SpikeRun late = spike_run(rolling(0, 1), {.spikes = {20}, .nans = {15}});
    EXPECT_EQ(keeper_->rollbacks.size(), 0U);
    EXPECT_EQ(late.result.diverged_step, 15);
  }
}

// From a checkpoint that has the decision, and from one before it.
TEST_P(Rollbacks, OfAResumedRunAreBitIdentical) {
  const SpecialBatches special{.spikes = {14, 22}};
  const SpikeRun expected = spike_run(rolling(5), special);
  for (const std::int64_t stop : {7, 12, 16, 19, 25, 41}) {
    struct Stopper : Callback {
      explicit Stopper(std::int64_t at) : at(at) {}
      void on_train_batch_end(Trainer& trainer, Module&) override {
        if (trainer.progress().global_step != at || !saved.tensors.empty()) return;
        if (trainer.will_go_back()) return;
        saved = copy_to(trainer.state_dict(), cpu());
        trainer.request_stop();
      }
      std::int64_t at;
      StateDict saved{};
    };
    TrainerOptions first = rolling(5);
    const auto stopper = std::make_shared<Stopper>(stop);
    first.callbacks.push_back(stopper);
    spike_run(first, special);
    const SpikeRun resumed = spike_run(rolling(5), special, &stopper->saved);
    expect_same_state(resumed.end, expected.end, std::to_string(stop));
    EXPECT_EQ(numbers_of(resumed.keeper->records.back()), numbers_of(expected.keeper->records.back()));
  }
}

TEST_P(Rollbacks, LeaveEachStepOnceInTheRecords) {
  TrainerOptions of_run = rolling(5);
  of_run.log_every_n_steps = 1;
  of_run.loggers = {std::make_shared<JsonlLogger>(run_ / "metrics.jsonl")};
  spike_run(of_run, {.spikes = {14, 22}});
  std::ifstream file(run_ / "metrics.jsonl");
  std::vector<std::int64_t> steps;
  for (std::string line; std::getline(file, line);)
    if (line.find("train_loss_step") != std::string::npos)
      steps.push_back(std::stoll(line.substr(line.find("global_step") + 13)));
  ASSERT_EQ(steps.size(), 56U);  // of 60 batches
  for (std::size_t i = 0; i < steps.size(); ++i) EXPECT_EQ(steps[i], static_cast<std::int64_t>(i + 1));
}

TEST_P(Rollbacks, AreReplayed) {
  const SpecialBatches special{.spikes = {14, 22}};
  TrainerOptions of_run = rolling(5);
  of_run.log_every_n_steps = 1;
  of_run.loggers = {std::make_shared<JsonlLogger>(run_ / "metrics.jsonl")};
  spike_run(of_run, special);
  const std::filesystem::path newest = newest_valid_checkpoint(run_ / "checkpoints")->path;
  for (const bool has_checkpoints : {true, false}) {
    if (!has_checkpoints)
      for (const auto& file : std::filesystem::directory_iterator(run_ / "checkpoints"))
        if (file.path() != newest) std::filesystem::remove_all(file);
    at::manual_seed(5);
    TensorData data = spiky_data(special);
    TrainerOptions again = options("rollback");
    again.log_every_n_steps = 1;
    const ReplayResult result =
        replay(again, std::make_shared<SpikyNet>(), data, {.run = run_.folder(), .step = 13, .until = 45});
    EXPECT_EQ(result.confirmed_step, 45);
    EXPECT_EQ(result.start_step, has_checkpoints ? 10 : 0);
    ASSERT_EQ(result.steps.size(), 33U);
    EXPECT_EQ(result.steps[0].batch, 12);
    EXPECT_EQ(result.steps[1].batch, 14);
  }
}

// A validation is due after a number of batches, also if the last of them is passed over.
TEST_P(Rollbacks, KeepValidationsWithinTheEpoch) {
  TrainerOptions of_run = rolling(4, 1);
  of_run.val_check_interval = CountOrFraction(std::int64_t{14});
  struct Counter : Callback {
    void on_validation_record(Trainer& trainer, Module&, const Record&) override {
      batches.push_back(trainer.progress().batch);
    }
    std::vector<std::int64_t> batches{};
  };
  const auto counter = std::make_shared<Counter>();
  of_run.callbacks.push_back(counter);
  struct Validated : TensorData {
    explicit Validated(TensorData data) : TensorData(std::move(data)) {}
    std::shared_ptr<DataLoader> val_dataloader() override { return train_dataloader(); }
  };
  struct Net : SpikyNet {
    void validation_step(const Batch& batch) override { log("val_loss", training_step(batch)); }
  };
  Validated data(spiky_data({.spikes = {14}}));
  Trainer(of_run).fit(std::make_shared<Net>(), data);
  EXPECT_EQ(counter->batches, (std::vector<std::int64_t>{14, 28}));
}

TEST(RollbacksOfRanks, AreTheSame) {
  for (const std::int64_t every : {0, 4}) {
    const Scratch folder(memory_folder());
    std::vector<SpikeRun> runs(2), expected(2);
    for (const bool has_spikes : {true, false})
      on_ranks(2, [&](ProcessGroup& group) {
        SpikeRun& run = (has_spikes ? runs : expected)[static_cast<std::size_t>(group.rank())];
        const std::set<std::int64_t> special{14, 21};
        TensorData data = has_spikes ? spiky_data({.spikes = special}, kSpikeBatchSize / 2)
                                     : spiky_data({.without = special}, kSpikeBatchSize / 2);
        TrainerOptions options{.max_epochs = 1};
        options.callbacks = {run.keeper};
        if (has_spikes) options.on_spike = SpikeOptions{.window = 20, .action = "rollback"};
        if (has_spikes && every > 0)
          options.callbacks.push_back(std::make_shared<ModelCheckpoint>(ModelCheckpointOptions{
              .dirpath = folder.folder(), .every_n_epochs = 0, .every_n_steps = every}));
        options.process_group = std::shared_ptr<ProcessGroup>(std::shared_ptr<void>(), &group);
        run.result = Trainer(options).fit(run.model, data);
      });
    for (std::size_t rank = 0; rank < 2; ++rank) {
      expect_same_run(runs[rank], expected[rank], std::to_string(every));
      EXPECT_EQ(value_of(runs[rank].keeper->records.back(), "passed_batches"), 2);
    }
  }
}

TEST(RollbacksOfCustomLoops, AreRefused) {
  Trainer trainer({.max_epochs = 1, .on_spike = SpikeOptions{.action = "rollback"}});
  const std::string text =
      error_text<ConfigError>([&] { trainer.prepare_model(std::make_shared<SpikyNet>()); });
  EXPECT_NE(text.find("only fit() can go back"), std::string::npos) << text;
}

TEST(PassedBatches, AreReadAsWritten) {
  PassedBatches passed;
  passed.add({.epoch = 3, .batch = 17, .count = 1});
  passed.add({.epoch = 5, .batch = 0, .count = 4});
  StateDict state;
  passed.save(state);
  const PassedBatches read = PassedBatches::load(state);
  EXPECT_EQ(read.num_steps(), 2U);
  EXPECT_EQ(read.count_at(3, 17), 1);
  EXPECT_EQ(read.count_at(5, 0), 4);
  EXPECT_EQ(read.count_at(5, 1), 0);
  for (const char* text : {"3", "3:1", "3:1:", "3:1:2 4", "a:b:c", "-1:0:1", "1:2:3:4"}) {
    state.metadata["progress.passed_batches"] = text;
    EXPECT_THROW(PassedBatches::load(state), CheckpointError) << text;
  }
}

}  // namespace
}  // namespace kindling
