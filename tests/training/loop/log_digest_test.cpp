// The fingerprint of all losses of a run, in records and checkpoints.
#include <gtest/gtest.h>

#include <bit>

#include "base/mixed_bits.h"
#include "kindling/loggers/jsonl_logger.h"
#include "kindling/optim/decay_schedules.h"
#include "kindling/tensors/checkpoint_file.h"
#include "kindling/training/model_checkpoint.h"
#include "loggers/run_metrics.h"
#include "support/device_under_test.h"
#include "support/scratch.h"
#include "training/loop/small_fit.h"

namespace kindling {
namespace {

class LogDigests : public OnDevice {
 protected:
  // Of a fit over batches {0, 1}, {2, 3}, {4} per epoch.
  std::vector<std::int64_t> of(TrainerOptions options, const FitOptions& fit = {},
                               std::shared_ptr<Module> model = std::make_shared<Slope>(),
                               std::int64_t batch_size = 2) {
    const auto logger = std::make_shared<MemoryLogger>();
    options.num_gpus = num_gpus_wanted();
    options.loggers.push_back(logger);
    if (!options.optimizer) options.optimizer = sgd(0.125);
    TensorData data = ramp(5, 2, batch_size);
    Trainer(options).fit(std::move(model), data, fit);
    std::vector<std::int64_t> digests;
    for (const Record& record : logger->records())
      if (record.kind == Record::Kind::epoch)
        digests.push_back(record.digest);
      else
        EXPECT_EQ(record.digest, 0);
    return digests;
  }
};
KINDLING_RUN_ON_TRAINER_DEVICES(LogDigests);

// w: 0, then 0.5/8, then 2.5/16 more; the loss is (2 - w)·mean(x).
TEST_P(LogDigests, MixStepBatchRateWeightAndLossOfEachRow) {
  std::uint64_t digest = 0;
  const double losses[] = {1, (2 - 0.0625) * 2.5, (2 - 0.375) * 4}, weights[] = {2, 2, 1};
  for (std::uint64_t row = 0; row < 3; ++row) {
    std::uint64_t sum = mixed_bits(row + 1) + mixed_bits(row ^ 0x9e3779b97f4a7c15), place = 2;
    for (const double value : {0.125, weights[row], losses[row]})
      sum += mixed_bits(std::bit_cast<std::uint64_t>(value) ^ (0x9e3779b97f4a7c15 * place++));
    digest = mixed_bits(digest ^ sum);
  }
  EXPECT_EQ(of({.max_epochs = 1}), (std::vector{static_cast<std::int64_t>(digest >> 11)}));
}

TEST_P(LogDigests, DoNotDependOnOptionsThatKeepTheSteps) {
  const auto digests = of({.max_epochs = 3});
  ASSERT_EQ(digests.size(), 3);
  EXPECT_NE(digests[0], digests[1]);
  EXPECT_EQ(of({.max_epochs = 3, .log_every_n_steps = 1, .track_grad_norm = 2}), digests);
  EXPECT_EQ(of({.max_epochs = 3, .on_nonfinite = "skip"}), digests);
  EXPECT_EQ(of({.max_epochs = 3, .num_sanity_val_steps = 0}), digests);
}

TEST_P(LogDigests, DifferFromTheFirstChangedRowOn) {
  const auto digests = of({.max_epochs = 2});
  EXPECT_NE(of({.max_epochs = 2, .optimizer = sgd(0.0625)})[0], digests[0]);
  EXPECT_NE(of({.max_epochs = 2}, {}, std::make_shared<Slope>(), 3)[0], digests[0]);
  const auto later = of({.max_epochs = 2, .schedule = step_schedule({.step_size = 4, .gamma = 0.5})});
  EXPECT_EQ(later[0], digests[0]);
  EXPECT_NE(later[1], digests[1]);
}

class EndsAtStep : public Callback {
 public:
  explicit EndsAtStep(std::int64_t step) : step_(step) {}
  void on_train_batch_end(Trainer& trainer, Module&) override {
    if (trainer.progress().global_step == step_) trainer.request_stop();
  }

 private:
  std::int64_t step_;
};

TEST_P(LogDigests, AreThoseOfTheWholeRunAfterAResume) {
  const auto digests = of({.max_epochs = 3});
  for (const std::int64_t step : {1, 2, 3, 5}) {
    const Scratch folder;
    const auto checkpoint = std::make_shared<ModelCheckpoint>(
        ModelCheckpointOptions{.dirpath = folder.folder(), .every_n_epochs = 0});
    of({.max_epochs = 3, .callbacks = {checkpoint, std::make_shared<EndsAtStep>(step)}});
    const auto rest = of({.max_epochs = 3}, {.resume = folder.folder()});
    ASSERT_EQ(rest.size(), step <= 3 ? 3 : 2) << step;
    EXPECT_TRUE(std::equal(rest.begin(), rest.end(), digests.end() - std::ssize(rest))) << step;
  }
}

TEST_P(LogDigests, AreAbsentAfterACheckpointWithoutOne) {
  const Scratch folder;
  const auto checkpoint =
      std::make_shared<ModelCheckpoint>(ModelCheckpointOptions{.dirpath = folder.folder()});
  of({.max_epochs = 1, .callbacks = {checkpoint}});
  StateDict state = load_checkpoint(folder.folder());
  ASSERT_EQ(state.metadata.erase("progress.log_digest"), 1);
  save_checkpoint(state, folder.folder() / "step-00000003.safetensors");
  EXPECT_EQ(of({.max_epochs = 2}, {.resume = folder.folder()}), std::vector<std::int64_t>{0});
}

TEST(LogDigestsInFiles, AreReadFromTheLinesOfEpochs) {
  const Scratch folder;
  const std::filesystem::path file = folder.folder() / "metrics.jsonl";
  constexpr std::int64_t kLargest = (std::int64_t{1} << 53) - 1;
  {
    JsonlLogger logger(file);
    logger.write({.global_step = 3, .epoch = 1, .values = {{"train_loss", 0.5}}, .digest = kLargest});
    logger.write({.global_step = 6, .epoch = 2, .values = {{"train_loss", 0.25}}});
  }
  EXPECT_EQ(read_file(file, 1000),
            "{\"epoch\": 1, \"global_step\": 3, \"train_loss\": 0.5, \"log_digest\": 9007199254740991}\n"
            "{\"epoch\": 2, \"global_step\": 6, \"train_loss\": 0.25}\n");
  const RunRecords records = read_metrics_file(file);
  ASSERT_EQ(records.metrics.epochs().size(), 2);
  EXPECT_EQ(records.metrics.epochs()[0].digest, kLargest);
  EXPECT_EQ(records.metrics.epochs()[1].digest, 0);
  EXPECT_EQ(records.metrics.names(), std::vector<std::string>{"train_loss"});
}

}  // namespace
}  // namespace kindling
