// Data that draws the random numbers of its samples: the same weights for any number of ranks and workers.
#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>
#include <stdexcept>
#include <thread>
#include <vector>

#include "kindling/data/sample_random.h"
#include "kindling/training/model_checkpoint.h"
#include "support/log_lines.h"
#include "support/scratch.h"
#include "training/parallel/rank_runs.h"

namespace kindling {
namespace {

// Noise in gather.
struct NoisySamples : Dataset {
  explicit NoisySamples(TensorData& data) : samples(data.train_dataloader()) {}
  std::int64_t size() const override { return samples->dataset().size(); }
  bool is_thread_safe() const override { return true; }
  void gather(const at::Tensor& indices, Batch& batch) const override {
    samples->dataset().gather(indices, batch);
    for (std::int64_t i = 0; i < indices.numel(); ++i)
      batch.tensors()[0][i].add_(0.1 * sample_random(indices.const_data_ptr<std::int64_t>()[i]).normal());
  }
  std::shared_ptr<DataLoader> samples;
};

// And two random numbers of each sample on the device.
struct NoisyData : DataModule {
  NoisyData(std::int64_t num_ranks, std::optional<std::int64_t> num_workers)
      : DataModule({.batch_size = kGlobalBatch / num_ranks, .seed = 5, .num_workers = num_workers}),
        samples(rank_images(1)) {}
  std::shared_ptr<DataLoader> train_dataloader() override { return loader; }
  std::int64_t num_random_numbers(Stage stage) const override { return stage == Stage::train ? 2 : 0; }
  Batch on_after_batch_transfer(Batch batch, Stage stage) override {
    if (stage != Stage::train) return batch;
    const at::Tensor& numbers = batch.random_numbers();
    batch.tensors()[0] = batch[0] * (numbers.select(1, 0) + 0.5).view({-1, 1, 1, 1}) +
                         numbers.select(1, 1).view({-1, 1, 1, 1});
    return batch;
  }
  TensorData samples;
  std::shared_ptr<DataLoader> loader =
      std::make_shared<DataLoader>(std::make_shared<NoisySamples>(samples), loader_options(true));
};

std::vector<at::Tensor> trained(std::int64_t num_ranks, std::optional<std::int64_t> num_workers) {
  std::vector<std::shared_ptr<Module>> models;
  for (std::int64_t rank = 0; rank < num_ranks; ++rank) {
    at::manual_seed(3);
    models.push_back(small_mlp());
  }
  const auto fit = [&](const std::shared_ptr<ProcessGroup>& group, std::int64_t rank) {
    NoisyData data(num_ranks, num_workers);
    TrainerOptions options = options_for(group);
    options.gradient_shards = 4;
    Trainer(options).fit(models[static_cast<std::size_t>(rank)], data);
  };
  fit_on_ranks(num_ranks, fit);
  return RankRun::on_host(models.front()->parameters());
}

TEST(DrawnData, GivesTheSameWeightsForAnyNumberOfRanksAndWorkers) {
  const LogLines log;
  const auto expected = trained(1, 0);
  for (const std::int64_t num_workers : {1, 3}) expect_same_weights(trained(1, num_workers), expected);
  EXPECT_EQ(log.texts, std::vector<std::string>());
  // The ranks of a test are threads and share LibTorch's generator, which the model of another rank moves.
  for (const std::int64_t num_ranks : {2, 4})
    for (const std::int64_t num_workers : {0, 1, 3})
      expect_same_weights(trained(num_ranks, num_workers), expected);
}

struct Stopper : Callback {
  void on_train_batch_end(Trainer& trainer, Module&) override {
    if (trainer.progress().global_step == 7) trainer.request_stop();  // an epoch has five steps
  }
};

TEST(DrawnData, GivesTheSameWeightsAfterAResumeInMidEpoch) {
  const auto fit = [](const FitOptions& how, const std::vector<std::shared_ptr<Callback>>& callbacks) {
    at::manual_seed(3);
    const auto model = small_mlp();
    NoisyData data(1, 2);
    Trainer({.max_epochs = 3, .optimizer = adamw(), .callbacks = callbacks}).fit(model, data, how);
    return RankRun::on_host(model->parameters());
  };
  const auto expected = fit({}, {});
  const Scratch scratch;
  const ModelCheckpointOptions saves{.dirpath = scratch / "checkpoints"};
  fit({}, {std::make_shared<ModelCheckpoint>(saves), std::make_shared<Stopper>()});
  expect_same_weights(fit({.resume = saves.dirpath}, {}), expected);
}

std::int64_t num_threads_of_process() {
  std::int64_t count = 0;
  for ([[maybe_unused]] const auto& thread : std::filesystem::directory_iterator("/proc/self/task")) ++count;
  return count;
}

struct Thrower : Callback {
  void on_train_batch_end(Trainer& trainer, Module&) override {
    if (trainer.progress().global_step == 7) throw std::runtime_error("in mid-epoch");
  }
};

// The data module, and with it the loader, outlive the training.
TEST(DrawnData, LeavesNoWorkerThreadWhenTheTrainingEndsOrThrows) {
  NoisyData data(1, 3);
  const auto fit = [&](const std::vector<std::shared_ptr<Callback>>& callbacks) {
    Trainer({.max_epochs = 2, .optimizer = adamw(), .callbacks = callbacks}).fit(small_mlp(), data);
  };
  fit({});
  const std::int64_t before = num_threads_of_process();
  fit({});
  EXPECT_THROW(fit({std::make_shared<Thrower>()}), std::runtime_error);
  std::int64_t after = num_threads_of_process();
  for (int i = 0; i < 400 && after != before; ++i, after = num_threads_of_process())
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_EQ(after, before);
}

}  // namespace
}  // namespace kindling
