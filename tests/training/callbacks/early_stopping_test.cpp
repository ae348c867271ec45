// A fit ends when its value has not improved for long enough, and not before.
#include "kindling/training/early_stopping.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "kindling/base/error.h"
#include "kindling/base/log.h"
#include "kindling/tensors/checkpoint_file.h"
#include "kindling/training/model_checkpoint.h"
#include "support/scratch.h"
#include "training/loop/confusion.h"
#include "training/loop/small_fit.h"

namespace kindling {
namespace {

// Gives the records a value of its choice.
struct ToldScores : Callback {
  explicit ToldScores(std::vector<double> of_epochs, std::string value_name = "val_loss")
      : values(std::move(of_epochs)), name(std::move(value_name)) {}
  void on_epoch_record(Trainer&, Module&, Record& record) override {
    std::erase_if(record.values, [&](const auto& value) { return value.first == name; });
    const double value = values.at(static_cast<std::size_t>(record.epoch - 1));
    if (value != kAbsent) record.values.emplace_back(name, value);
  }
  static constexpr double kAbsent = -1e9;
  std::vector<double> values;
  std::string name;
};

struct ScoredFit {
  ScoredFit(std::vector<double> scores, EarlyStoppingOptions asked = {}, const std::string& name = "val_loss")
      : stopping(std::make_shared<EarlyStopping>(asked)) {
    options = {.max_epochs = static_cast<std::int64_t>(scores.size()),
               .optimizer = sgd(0.01),
               .callbacks = {std::make_shared<ToldScores>(std::move(scores), name), stopping}};
  }
  FitResult fit(const std::filesystem::path& resume = {}) {
    return Trainer(options).fit(std::make_shared<Slope>(), data, {.resume = resume});
  }
  // Epochs until the stop; 0: there was none.
  std::int64_t epochs() {
    const FitResult result = fit();
    EXPECT_EQ(result.reason == FitReason::early_stop, result.status == FitStatus::stopped);
    return result.reason == FitReason::early_stop ? result.progress.epoch : 0;
  }

  std::shared_ptr<EarlyStopping> stopping;
  TensorData data = ramp(4, 2, 2);
  TrainerOptions options;
};

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinite = std::numeric_limits<double>::infinity();

TEST(EarlyStopping, WaitsForItsPatience) {
  ScoredFit fit({5, 4, 4, 4, 3, 3, 3.5, 4, 1, 1});
  EXPECT_EQ(fit.epochs(), 8);  // three after the fifth
  EXPECT_EQ(fit.stopping->best(), 3);
  EXPECT_EQ(fit.stopping->num_without_improvement(), 3);
  EXPECT_EQ(ScoredFit({5, 6, 6, 4, 6}).epochs(), 0);
  EXPECT_EQ(ScoredFit({5, 6, 4, 3}, {.patience = 1}).epochs(), 2);
  EXPECT_EQ(ScoredFit({5, 4, 6, 3}, {.patience = 0}).epochs(), 3);
}

TEST(EarlyStopping, SaysWhyItStops) {
  const auto reason = [](std::vector<double> scores, EarlyStoppingOptions asked, std::int64_t every = 1) {
    ScoredFit fit(std::move(scores), asked);
    fit.options.check_val_every_n_epoch = every;
    fit.fit();
    return fit.stopping->stop_reason();
  };
  EXPECT_EQ(reason({5, 6, 6, 6}, {}), "val_loss has not improved for 3 epochs");
  EXPECT_EQ(reason({5, 6, 6, 6}, {.patience = 1}), "val_loss has not improved for 1 epoch");
  EXPECT_EQ(reason({5, 6, 6, 6}, {}, 2), "val_loss has not improved for 3 validations");
  EXPECT_EQ(reason({5, kNan}, {}), "val_loss is nan");
  EXPECT_EQ(reason({5, 1.0 / 3}, {.stopping_threshold = 0.4}),
            "val_loss is 0.3333, better than stopping_threshold = 0.4");
  EXPECT_EQ(reason({5, 4}, {}), "");
}

TEST(EarlyStopping, ComparesByMode) {
  EXPECT_EQ(ScoredFit({1, 2, 3, 4, 5, 6}, {.mode = "max"}).epochs(), 0);
  EXPECT_EQ(ScoredFit({1, 2, 3, 4, 5, 6}, {.mode = "min"}).epochs(), 4);
  EXPECT_EQ(ScoredFit({6, 5, 4, 3, 2, 1}, {.mode = "max"}).epochs(), 4);
  EXPECT_EQ(ScoredFit({1, 2, 3, 4, 5, 6}, {.monitor = "score", .mode = "max"}, "score").epochs(), 0);
  EXPECT_EQ(ScoredFit({6, 5, 4, 3, 2, 1}, {.monitor = "score", .mode = "max"}, "score").epochs(), 4);
}

TEST(EarlyStopping, RequiresMoreThanMinDelta) {
  const std::vector<double> steps{5, 4.5, 4, 3.5, 3, 2.5};
  EXPECT_EQ(ScoredFit(steps, {.min_delta = 0.5, .patience = 1}).epochs(), 2);  // just so much is not more
  EXPECT_EQ(ScoredFit(steps, {.min_delta = 0.4, .patience = 1}).epochs(), 0);
  // Small steps add up against the best.
  EXPECT_EQ(ScoredFit(steps, {.min_delta = 0.7, .patience = 2}).epochs(), 0);
  EXPECT_EQ(ScoredFit({1, 1.5, 2, 2.5}, {.mode = "max", .min_delta = 0.5, .patience = 1}).epochs(), 2);
}

TEST(EarlyStopping, ChecksThresholds) {
  EXPECT_EQ(ScoredFit({5, 4, 3, 2, 1}, {.stopping_threshold = 2.5}).epochs(), 4);
  EXPECT_EQ(ScoredFit({5, 4, 3, 2, 1}, {.stopping_threshold = 1}).epochs(), 0);
  EXPECT_EQ(ScoredFit({5, 9, 3, 2, 1}, {.divergence_threshold = 8}).epochs(), 2);
  EXPECT_EQ(ScoredFit({1, 2, 3}, {.mode = "max", .stopping_threshold = 1.5}).epochs(), 2);
  EXPECT_EQ(ScoredFit({3, 0, 3}, {.mode = "max", .divergence_threshold = 1}).epochs(), 2);
}

TEST(EarlyStopping, ChecksForNonfiniteValues) {
  EXPECT_EQ(ScoredFit({5, kNan, 3}).epochs(), 2);
  EXPECT_EQ(ScoredFit({5, kInfinite, 3}).epochs(), 2);
  EXPECT_EQ(ScoredFit({5, kNan, 3, 4}, {.patience = 2, .check_finite = false}).epochs(), 0);
  EXPECT_EQ(ScoredFit({5, kNan, kNan, 3}, {.patience = 2, .check_finite = false}).epochs(), 3);
}

TEST(EarlyStopping, DoesNotCountEpochsWithoutTheValue) {
  const double none = ToldScores::kAbsent;
  EXPECT_EQ(ScoredFit({5, none, 6, none, 6, none, 6, none}, {.strict = false}).epochs(), 7);
}

TEST(EarlyStopping, NamesTheAvailableValues) {
  const auto text = [](EarlyStoppingOptions options, bool has_validation) {
    ScoredFit fit({1, 1, 1}, options, "score");
    if (!has_validation) fit.data = ramp(4, 0, 2);
    return error_text<ConfigError>([&] { fit.fit(); });
  };
  const std::string missing = text({.monitor = "val_accuracy", .mode = "max"}, true);
  EXPECT_NE(missing.find("no 'val_accuracy'"), std::string::npos) << missing;
  EXPECT_NE(missing.find("train_loss"), std::string::npos) << missing;
  EXPECT_NE(missing.find("score"), std::string::npos) << missing;
  // The model's own monitor is a validation's.
  EXPECT_NE(text({}, false).find("no 'val_loss'"), std::string::npos);
  EXPECT_EQ(ScoredFit({1, 1, 1}, {.monitor = "nothing", .mode = "max", .strict = false}).epochs(), 0);
  const std::string no_mode = text({.monitor = "score"}, true);
  EXPECT_NE(no_mode.find("mode is not set"), std::string::npos) << no_mode;
  // Of the value of a further validation set it is known.
  const std::string other_set = text({.monitor = "val_loss/far"}, true);
  EXPECT_NE(other_set.find("no 'val_loss/far'"), std::string::npos) << other_set;
  const std::string range = error_text<ConfigError>([] { EarlyStopping({.patience = -1}); });
  EXPECT_NE(range.find("patience"), std::string::npos) << range;
}

TEST(EarlyStopping, ResumesWithTheRemainingPatience) {
  const std::vector<double> scores{5, 4, 4.5, 4.5, 4.5, 4.5, 4.5};
  ASSERT_EQ(ScoredFit(scores).epochs(), 5);
  for (std::int64_t at = 1; at <= 5; ++at) {
    const Scratch scratch(memory_folder());
    ScoredFit first(scores), rest(scores);
    first.options.max_epochs = at;
    first.options.callbacks.push_back(
        std::make_shared<ModelCheckpoint>(ModelCheckpointOptions{.dirpath = scratch / "c"}));
    first.fit();
    const FitResult result = rest.fit(scratch / "c");
    EXPECT_EQ(result.reason, FitReason::early_stop) << at;
    EXPECT_EQ(result.progress.epoch, 5) << at;  // also when it had been stopped there
    EXPECT_EQ(rest.stopping->best(), 4) << at;
    if (at < 5) continue;
    ScoredFit patient(scores, {.patience = 4});
    EXPECT_EQ(patient.fit(scratch / "c").progress.epoch, 6);
  }
}

TEST(EarlyStopping, StartsFromScratchInEachRunAndEndsCustomLoops) {
  ScoredFit fit({5, 6, 6, 6, 6, 6});
  EXPECT_EQ(fit.epochs(), 4);
  EXPECT_EQ(fit.epochs(), 4);
  for (int times = 0; times < 2; ++times) {
    Trainer trainer(fit.options);
    trainer.prepare_data(fit.data);
    trainer.prepare_model(std::make_shared<Slope>());
    while (!trainer.is_done()) trainer.fit_epoch();
    EXPECT_EQ(trainer.progress().epoch, 4);
    EXPECT_EQ(trainer.stop_token().reason(), FitReason::early_stop);
  }
}

}  // namespace
}  // namespace kindling
