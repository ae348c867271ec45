// A batch that is cut into shards, in a process alone; see program/replicas_test.cpp for several.
#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include <stdexcept>
#include <vector>

#include "training/rank_runs.h"

namespace kindling {
namespace {

// Tells what it finds in its buffer, which each step moves, and may be made to throw.
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
  ShardLoop() {
    trainer.prepare_data(data);
    trainer.prepare_model(model);
  }
  static std::shared_ptr<CountedSteps> seeded() {
    at::manual_seed(3);
    return std::make_shared<CountedSteps>();
  }
  TensorData data = rank_images(1);
  Trainer trainer{TrainerOptions{.max_epochs = 1, .gradient_shards = 2, .optimizer = adamw()}};
  std::shared_ptr<CountedSteps> model = seeded();
};

TEST(GradientShards, BeginWithTheSameBuffersAndLeaveThoseOfTheFirst) {
  ShardLoop loop;
  int left = 6;
  for (const Batch& batch : loop.trainer.train_batches()) {
    loop.trainer.train_step(batch);
    if (--left == 0) break;
  }
  EXPECT_EQ(loop.model->seen, (std::vector<float>{0, 0, 1, 1, 2, 2}));
  EXPECT_EQ(loop.model->steps.item<float>(), 3);
}

TEST(GradientShards, OfAStepThatHasThrownLeaveNothingBehind) {
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
