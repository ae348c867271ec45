// Fits on data without an end: where epochs begin, and what a resumed run sees.
#include <ATen/Functions.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kindling/base/error.h"
#include "kindling/data/iterable_dataset.h"
#include "kindling/tensors/checkpoint_file.h"
#include "kindling/training/update_bn.h"
#include "support/scratch.h"
#include "training/loop/small_fit.h"

namespace kindling {
namespace {

// {x, 2x} for x = 0, 1, 2, …
class CountStream : public IterableDataset {
 public:
  std::int64_t num_restarts = 0;

 protected:
  void restart() override { ++num_restarts; }
  std::vector<at::Tensor> next(std::int64_t number) override {
    const at::Tensor x = at::full({1}, number, at::kFloat);
    return {x, 2 * x};
  }
};

struct CountData : DataModule {
  explicit CountData(std::int64_t batch_size) : DataModule({.batch_size = batch_size}) {}
  std::shared_ptr<DataLoader> train_dataloader() override {
    return std::make_shared<DataLoader>(std::make_shared<CountStream>(), loader_options(true));
  }
  std::shared_ptr<DataLoader> val_dataloader() override {
    return has_validation
               ? std::make_shared<DataLoader>(std::make_shared<CountStream>(), loader_options(false))
               : nullptr;
  }
  bool has_validation = false;
};

// Remembers the samples of all batches.
struct CountingSlope : Slope {
  at::Tensor training_step(const Batch& batch) override {
    const at::Tensor x = batch[0].contiguous();
    seen.insert(seen.end(), x.const_data_ptr<float>(), x.const_data_ptr<float>() + x.numel());
    return Slope::training_step(batch);
  }
  std::vector<float> seen;
};

std::vector<float> first_counts(std::int64_t count) {
  std::vector<float> numbers;
  for (std::int64_t i = 0; i < count; ++i) numbers.push_back(static_cast<float>(i));
  return numbers;
}

TEST(EndlessData, MaxStepsEndTheOnlyEpoch) {
  CountData data(4);
  const auto model = std::make_shared<CountingSlope>();
  Trainer trainer({.max_steps = 5, .accumulate_grad_batches = 2, .optimizer = sgd(1e-6)});
  const FitResult result = trainer.fit(model, data);
  EXPECT_EQ(model->seen, first_counts(40));
  EXPECT_EQ(result.progress.epoch, 1);
  EXPECT_EQ(result.progress.global_step, 5);
}

TEST(EndlessData, EpochsContinueOneAnother) {
  CountData data(2);
  const auto model = std::make_shared<CountingSlope>();
  Trainer trainer({.max_epochs = 3, .limit_train_batches = 4, .optimizer = sgd(1e-6)});
  trainer.fit(model, data);
  EXPECT_EQ(model->seen, first_counts(24));
}

TEST(EndlessData, IsReadOnceWithAWorker) {
  struct WorkerData : DataModule {
    WorkerData() : DataModule({.batch_size = 2, .num_workers = 1}) {}
    std::shared_ptr<DataLoader> train_dataloader() override {
      return std::make_shared<DataLoader>(counts, loader_options(true));
    }
    std::shared_ptr<CountStream> counts = std::make_shared<CountStream>();
  } data;
  const auto model = std::make_shared<CountingSlope>();
  Trainer trainer({.max_epochs = 5, .limit_train_batches = 7, .optimizer = sgd(1e-6)});
  trainer.fit(model, data);
  EXPECT_EQ(model->seen, first_counts(70));
  EXPECT_EQ(data.counts->num_restarts, 1);
}

TEST(EndlessData, AveragedStatisticsAreThoseOfTheRun) {
  struct NormedSlope : Slope {
    at::Tensor forward(const at::Tensor& x) override { return Slope::forward(norm(x)); }
    torch::nn::BatchNorm1d norm = register_module("norm", torch::nn::BatchNorm1d(1));
  };
  CountData data(2);
  const auto model = std::make_shared<NormedSlope>();
  Trainer trainer({.max_steps = 3, .optimizer = sgd(1e-6)});
  trainer.fit(model, data);
  update_bn(trainer, *model, data);
  EXPECT_EQ(model->norm->running_mean.item<float>(), 2.5F);  // of 0, 1, …, 5
}

TEST(EndlessData, OverfitBatchesRepeatTheFirstOnes) {
  CountData data(2);
  const auto model = std::make_shared<CountingSlope>();
  Trainer trainer({.max_epochs = 2,
                   .limit_train_batches = 4,
                   .overfit_batches = CountOrFraction(1),
                   .optimizer = sgd(1e-6)});
  trainer.fit(model, data);
  EXPECT_EQ(model->seen, (std::vector<float>{0, 1, 0, 1}));
}

// Saves after a number of steps.
struct SaveAt : Callback {
  SaveAt(std::int64_t at_step, std::filesystem::path to) : step(at_step), path(std::move(to)) {}
  void on_train_batch_end(Trainer& trainer, Module&) override {
    if (trainer.progress().global_step == step && trainer.progress().accumulated_batches == 0)
      save_checkpoint(trainer.state_dict(), path);
  }
  std::int64_t step;
  std::filesystem::path path;
};

// Trains `before` steps, then resumes with other options; returns the samples of the second session.
std::vector<float> seen_after_resume(TrainerOptions first, TrainerOptions second, std::int64_t at_step,
                                     std::int64_t second_batch_size = 2) {
  const Scratch scratch;
  const auto path = scratch / "run.safetensors";
  CountData data(2);
  first.optimizer = second.optimizer = sgd(1e-6);
  first.callbacks = {std::make_shared<SaveAt>(at_step, path)};
  Trainer(first).fit(std::make_shared<CountingSlope>(), data);
  const auto model = std::make_shared<CountingSlope>();
  CountData again(second_batch_size);
  Trainer(second).fit(model, again, {.resume = path});
  return model->seen;
}

std::vector<float> counts_between(std::int64_t begin, std::int64_t end) {
  const std::vector<float> all = first_counts(end);
  return {all.begin() + begin, all.end()};
}

TEST(EndlessData, AResumedRunContinuesWithTheNextSample) {
  const TrainerOptions steps{.max_steps = 10};
  EXPECT_EQ(seen_after_resume(steps, steps, 4), counts_between(8, 20));
  const TrainerOptions epochs{.max_epochs = 3, .limit_train_batches = 4};
  EXPECT_EQ(seen_after_resume(epochs, epochs, 6), counts_between(12, 24));
  EXPECT_EQ(seen_after_resume(epochs, epochs, 8), counts_between(16, 24));
}

// The length of an epoch is not a position in the data.
TEST(EndlessData, AResumedRunMayHaveOtherEpochs) {
  EXPECT_EQ(seen_after_resume({.max_steps = 4}, {.max_steps = 9}, 3), counts_between(6, 18));
  EXPECT_EQ(seen_after_resume({.max_epochs = 2, .limit_train_batches = 4},
                              {.max_epochs = 3, .limit_train_batches = 5}, 6),
            counts_between(12, 28));
}

TEST(EndlessData, AResumedRunMayHaveAnotherBatchSize) {
  const TrainerOptions steps{.max_steps = 10};
  EXPECT_EQ(seen_after_resume(steps, steps, 7, /*second_batch_size=*/5), counts_between(14, 29));
  EXPECT_EQ(seen_after_resume(steps, steps, 7, /*second_batch_size=*/1), counts_between(14, 17));
  const TrainerOptions epochs{.max_epochs = 3, .limit_train_batches = 4};
  EXPECT_EQ(seen_after_resume(epochs, epochs, 6, /*second_batch_size=*/3), counts_between(12, 30));
}

TEST(EndlessData, ShardsOfAStepHaveItsSamples) {
  const auto seen = [](std::int64_t shards, const std::filesystem::path& resume,
                       const std::filesystem::path& to) {
    CountData data(4);
    const auto model = std::make_shared<CountingSlope>();
    TrainerOptions options{.max_steps = 6, .gradient_shards = shards, .optimizer = sgd(1e-6)};
    if (!to.empty()) options.callbacks = {std::make_shared<SaveAt>(3, to)};
    Trainer(options).fit(model, data, {.resume = resume});
    std::ranges::sort(model->seen);
    return model->seen;
  };
  const Scratch scratch;
  EXPECT_EQ(seen(2, {}, scratch / "run.safetensors"), first_counts(24));
  EXPECT_EQ(seen(2, scratch / "run.safetensors", {}), counts_between(12, 24));
}

TEST(EndlessData, AFinishedRunContinuesAfterItsLastSample) {
  const Scratch scratch;
  const auto path = scratch / "run.safetensors";
  CountData data(2);
  {
    Trainer trainer({.max_steps = 4, .optimizer = sgd(1e-6)});
    trainer.prepare_data(data);
    trainer.prepare_model(std::make_shared<CountingSlope>());
    while (!trainer.is_done()) trainer.fit_epoch();
    save_checkpoint(trainer.state_dict(), path);
  }
  const auto model = std::make_shared<CountingSlope>();
  Trainer trainer({.max_steps = 7, .optimizer = sgd(1e-6)});
  trainer.fit(model, data, {.resume = path});
  EXPECT_EQ(model->seen, counts_between(8, 14));
}

TEST(EndlessData, WithoutALimitIsRefused) {
  const auto error_of = [](TrainerOptions options, bool has_validation) {
    CountData data(2);
    data.has_validation = has_validation;
    options.optimizer = sgd(1e-6);
    return error_text<ConfigError>([&] { Trainer(options).fit(std::make_shared<CountingSlope>(), data); });
  };
  EXPECT_NE(error_of({.max_epochs = 1}, false).find("set limit_train_batches or max_steps"),
            std::string::npos);
  EXPECT_NE(error_of({.max_steps = 1}, true).find("trainer.limit_val_batches"), std::string::npos);
  EXPECT_EQ(error_of({.max_steps = 1, .limit_val_batches = 1}, true), "(no error)");
}

}  // namespace
}  // namespace kindling
