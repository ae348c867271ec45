// A batch split into shards in a single process; see program/replicas_test.cpp for several ranks.
#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include <stdexcept>
#include <vector>

#include "kindling/base/log.h"
#include "training/parallel/rank_runs.h"

namespace kindling {
namespace {

// Reports the value of its buffer, which each step changes; may be made to throw.
class CountedSteps : public Mlp {
 public:
  CountedSteps() : Mlp(MlpOptions{.hidden = {16}}) {
    forward(at::zeros({1, 100}));
    steps = register_buffer("steps", at::zeros({}));
  }
  at::Tensor training_step(const Batch& batch) override {
    seen.push_back(steps.item<float>());
    steps.add_(1);
    if (throws) throw std::runtime_error("a shard that cannot be read");
    return Mlp::training_step(batch);
  }
  at::Tensor steps;
  std::vector<float> seen;
  bool throws = false;
};

struct ShardLoop {
  explicit ShardLoop(std::int64_t accumulate_grad_batches = 1)
      : trainer({.max_epochs = 1,
                 .accumulate_grad_batches = accumulate_grad_batches,
                 .gradient_shards = 2,
                 .optimizer = adamw()}) {
    trainer.prepare_data(data);
    trainer.prepare_model(model);
  }
  static std::shared_ptr<CountedSteps> seeded() {
    at::manual_seed(3);
    return std::make_shared<CountedSteps>();
  }
  TensorData data = rank_images(1);
  Trainer trainer;
  std::shared_ptr<CountedSteps> model = seeded();
};

TEST(GradientShards, StartFromTheSameBuffersAndKeepThoseOfTheFirst) {
  ShardLoop loop;
  int left = 6;
  for (const Batch& batch : loop.trainer.train_batches()) {
    loop.trainer.train_step(batch);
    if (--left == 0) break;
  }
  EXPECT_EQ(loop.model->seen, (std::vector<float>{0, 0, 1, 1, 2, 2}));
  EXPECT_EQ(loop.model->steps.item<float>(), 3);
}

// Data that draws random numbers in its hook if `draws` is set.
struct DrawingImages : TensorData {
  explicit DrawingImages(bool draws)
      : TensorData({at::rand({16, 1, 10, 10}), at::arange(16).remainder(10)}, {}, {.batch_size = 8}),
        draws(draws) {}
  using TensorData::on_after_batch_transfer;
  Batch on_after_batch_transfer(Batch batch) override {
    if (draws) batch.tensors()[0] = batch[0] + at::rand_like(batch[0]);
    return batch;
  }
  bool draws;
};

TEST(GradientShards, WarnOnceAboutDataThatDrawsRandomNumbers) {
  for (const std::int64_t shards : {1, 2})
    for (const bool draws : {false, true}) {
      int num_warnings = 0;
      configure_log({.level = LogLevel::warning});
      set_log_observer([&](LogLevel, const std::string& line) {
        num_warnings += line.find("the data draws random numbers") != std::string::npos;
      });
      DrawingImages data(draws);
      Trainer({.max_epochs = 2, .gradient_shards = shards, .optimizer = adamw()})
          .fit(ShardLoop::seeded(), data);
      set_log_observer({});
      EXPECT_EQ(num_warnings, shards == 2 && draws ? 1 : 0) << shards << draws;
    }
}

// Each batch of a window moves them by one.
TEST(GradientShards, StartFromTheBuffersOfThePreviousBatchInAWindow) {
  ShardLoop loop(/*accumulate_grad_batches=*/2);
  std::vector<std::int64_t> steps;
  for (const Batch& batch : loop.trainer.train_batches()) {
    loop.trainer.train_step(batch);
    steps.push_back(loop.trainer.progress().global_step);
  }
  EXPECT_EQ(loop.model->seen, (std::vector<float>{0, 0, 1, 1, 2, 2, 3, 3, 4, 4}));
  EXPECT_EQ(steps, (std::vector<std::int64_t>{0, 0, 0, 1, 1, 1, 1, 2, 2, 3}));  // of five batches
}

// Up to the order of sums: 5e-7 is some last bits of weights below 1, after nine steps.
TEST(GradientShards, StepLikeAnUnshardedWindow) {
  const auto run = [](std::int64_t size, std::int64_t shards) {
    return run_ranks(size, [&](TrainerOptions& options, std::int64_t) {
      options.accumulate_grad_batches = 2;
      options.gradient_shards = shards;
      options.optimizer = sgd(0.1);
    });
  };
  const auto plain = run(1, 1), alone = run(1, 4), several = run(2, 4);
  EXPECT_EQ(alone[0].result.progress.global_step, plain[0].result.progress.global_step);
  for (std::size_t i = 0; i < plain[0].weights().size(); ++i) {
    EXPECT_TRUE(at::allclose(alone[0].weights()[i], plain[0].weights()[i], 0, 5e-7)) << i;
    EXPECT_TRUE(several[0].weights()[i].equal(alone[0].weights()[i])) << i;
  }
  expect_replicas(several);
}

// A number of batches means global ones.
TEST(GradientShards, OverfitOnAsManyBatchesWithAnyNumberOfRanks) {
  for (const CountOrFraction batches : {CountOrFraction(2), CountOrFraction(0.7)}) {
    const auto run = [&](std::int64_t size) {
      return run_ranks(size, [&](TrainerOptions& options, std::int64_t) {
        options.gradient_shards = 4;
        options.overfit_batches = batches;
      });
    };
    const auto alone = run(1), several = run(2);
    // Three epochs of two batches, or of 0.7 of five.
    EXPECT_EQ(alone[0].result.progress.global_step, batches.is_fraction() ? 9 : 6);
    EXPECT_EQ(several[0].result.progress.global_step, alone[0].result.progress.global_step);
    for (std::size_t i = 0; i < alone[0].weights().size(); ++i)
      EXPECT_TRUE(several[0].weights()[i].equal(alone[0].weights()[i])) << i;
  }
}

// In each batch of the window the model reads the buffers of rank 0.
TEST(GradientShards, ReadTheSameBuffersOnAllRanksInAWindow) {
  struct Drifting : Mlp {
    Drifting() : Mlp(MlpOptions{.hidden = {16}}) {
      forward(at::zeros({1, 100}));
      mean = register_buffer("mean", at::zeros({100}));
    }
    at::Tensor training_step(const Batch& batch) override {
      {
        const at::NoGradGuard no_grad;
        mean.mul_(0.5).add_(batch[0].flatten(1).mean(0));
      }
      return Mlp::training_step({batch[0] - mean.view({1, 1, 10, 10}), batch[1]});
    }
    at::Tensor mean;
  };
  const auto run = [](std::int64_t size) {
    return run_ranks(
        size,
        [](TrainerOptions& options, std::int64_t) {
          options.accumulate_grad_batches = 3;
          options.gradient_shards = 4;
        },
        [] { return std::make_shared<Drifting>(); });
  };
  const auto alone = run(1), several = run(4);
  expect_replicas(several);
  for (std::size_t i = 0; i < alone[0].weights().size(); ++i)
    EXPECT_TRUE(several[0].weights()[i].equal(alone[0].weights()[i])) << i;
  EXPECT_TRUE(several[0].buffers()[0].equal(alone[0].buffers()[0]));
}

TEST(GradientShards, AreCountedOnceWhenOptionsAreReused) {
  const Trainer first({.max_epochs = 1, .accumulate_grad_batches = 2, .gradient_shards = 4});
  EXPECT_EQ(first.options().accumulate_grad_batches, 2);
  EXPECT_EQ(Trainer(first.options()).options().accumulate_grad_batches, 2);
}

TEST(GradientShards, DropTheGradientsOfAStepThatThrew) {
  ShardLoop plain, torn;
  std::vector<Batch> shards;
  for (const Batch& batch : plain.trainer.train_batches()) {
    shards.push_back(batch);
    plain.trainer.train_step(batch);
    if (shards.size() == 2) break;
  }
  int i = 0;
  for (const Batch& batch : torn.trainer.train_batches()) {
    torn.model->throws = i++ == 1;
    if (torn.model->throws) {
      EXPECT_ANY_THROW(torn.trainer.train_step(batch));
      break;
    }
    torn.trainer.train_step(batch);
  }
  torn.model->throws = false;
  for (const Batch& batch : shards) torn.trainer.train_step(batch);
  for (std::size_t at = 0; at < plain.model->parameters().size(); ++at)
    EXPECT_TRUE(torn.model->parameters()[at].equal(plain.model->parameters()[at])) << at;
}

}  // namespace
}  // namespace kindling
