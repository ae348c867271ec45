// Several validation sets.
#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kindling/base/error.h"
#include "kindling/loggers/memory_logger.h"
#include "kindling/training/early_stopping.h"
#include "support/scratch.h"
#include "training/loop/small_fit.h"

namespace kindling {
namespace {

// ramp() with further validation sets: the samples from `begin` to `end`.
class SeveralSets : public TensorData {
 public:
  struct Set {
    std::string name;
    std::int64_t begin, end;
  };
  explicit SeveralSets(std::vector<Set> sets)
      : TensorData(samples(0, 8), samples(0, 2), {.batch_size = 2, .shuffle = false}),
        sets_(std::move(sets)) {}
  std::vector<NamedLoader> more_val_dataloaders() override {
    std::vector<NamedLoader> loaders;
    for (const auto& [name, begin, end] : sets_)
      loaders.push_back(
          {name, begin < end ? get_tensorloader(samples(begin, end), /*train=*/false) : nullptr});
    return loaders;
  }

 private:
  static std::vector<at::Tensor> samples(std::int64_t begin, std::int64_t end) {
    const at::Tensor x = at::arange(begin, end, at::kFloat).unsqueeze(1);
    return {x, 2 * x};
  }
  std::vector<Set> sets_;
};

// Logs a name in training and validation, too.
struct LogsMeans : Slope {
  at::Tensor training_step(const Batch& batch) override {
    log("mean", batch[0].mean());
    return Slope::training_step(batch);
  }
  void validation_step(const Batch& batch) override {
    log("mean", batch[0].mean());
    Slope::validation_step(batch);
  }
};

// With a rate of zero the loss is 2·mean(x).
TrainerOptions without_learning(std::int64_t max_epochs) {
  return {.max_epochs = max_epochs, .optimizer = sgd(0)};
}

TEST(ValidationSets, EachHasItsValuesInTheRecord) {
  SeveralSets data({{"large", 100, 104}, {"odd", 7, 8}});
  const auto logger = std::make_shared<MemoryLogger>();
  TrainerOptions options = without_learning(2);
  options.loggers = {logger};
  const auto model = std::make_shared<LogsMeans>();
  const FitResult result = Trainer(options).fit(model, data);
  for (const Metrics& values : {result.metrics, Trainer().validate(model, data)}) {
    EXPECT_EQ(values.at("val_loss"), 1);
    EXPECT_EQ(values.at("val_loss/large"), 203);
    EXPECT_EQ(values.at("val_loss/odd"), 14);
  }
  const Record& record = logger->records().back();
  EXPECT_EQ(value_of(record, "mean"), 3.5);
  EXPECT_EQ(value_of(record, "val_mean"), 0.5);
  EXPECT_EQ(value_of(record, "val_mean/large"), 101.5);
  EXPECT_EQ(value_of(record, "val_mean/odd"), 7);
}

TEST(ValidationSets, ValidationsWithinAnEpochHaveTheSameNames) {
  SeveralSets data({{"odd", 7, 8}});
  const auto logger = std::make_shared<MemoryLogger>();
  TrainerOptions options = without_learning(1);
  options.loggers = {logger};
  options.val_check_interval = CountOrFraction(2);
  Trainer(options).fit(std::make_shared<LogsMeans>(), data);
  ASSERT_EQ(logger->records().size(), 2U);
  for (const Record& record : logger->records()) {
    EXPECT_EQ(value_of(record, "val_loss/odd"), 14);
    EXPECT_EQ(value_of(record, "val_mean/odd"), 7);
  }
}

TEST(ValidationSets, BatchesAreCountedThroughAllSets) {
  struct Counts : Callback {
    void on_validation_batch_end(Trainer&, Module&, std::int64_t batch, std::int64_t num_batches) override {
      batches.push_back(batch);
      EXPECT_EQ(num_batches, 4);
    }
    std::vector<std::int64_t> batches;
  };
  SeveralSets data({{"large", 100, 104}, {"odd", 7, 8}});
  const auto counts = std::make_shared<Counts>();
  TrainerOptions options = without_learning(1);
  options.callbacks = {counts};
  const auto model = std::make_shared<Slope>();
  Trainer(options).fit(model, data);
  EXPECT_EQ(counts->batches, (std::vector<std::int64_t>{1, 2, 3, 4}));
  EXPECT_EQ(model->num_val_batches, 2 * 4);  // with the sanity check, of at most two batches per set
}

TEST(ValidationSets, OneOfThemMayBeMonitored) {
  SeveralSets data({{"odd", 7, 8}});
  TrainerOptions options = without_learning(9);
  options.callbacks = {std::make_shared<EarlyStopping>(
      EarlyStoppingOptions{.monitor = "val_loss/odd", .mode = "min", .patience = 2})};
  EXPECT_EQ(Trainer(options).fit(std::make_shared<Slope>(), data).progress.epoch, 3);
}

TEST(ValidationSets, MistakesAreRefused) {
  const auto error_of = [](std::vector<SeveralSets::Set> sets) {
    SeveralSets data(std::move(sets));
    return error_text<DataError>([&] { Trainer(without_learning(1)).fit(std::make_shared<Slope>(), data); });
  };
  EXPECT_NE(error_of({{"a", 0, 1}, {"a", 1, 2}}).find("two validation sets are named 'a'"),
            std::string::npos);
  EXPECT_NE(error_of({{"", 0, 1}}).find("has no name"), std::string::npos);
  EXPECT_NE(error_of({{"a", 1, 1}}).find("'a' has no loader"), std::string::npos);
}

}  // namespace
}  // namespace kindling
