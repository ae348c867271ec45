// Fits with each transform of images: the same weights for any number of ranks, and after a resume in
// mid-epoch.
#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "data/transforms/every_transform.h"
#include "kindling/data/transformed_data.h"
#include "kindling/training/model_checkpoint.h"
#include "support/scratch.h"
#include "training/parallel/rank_runs.h"

namespace kindling {
namespace {

// 48 color images in [0, 1] with their labels, in global batches of 12.
std::shared_ptr<DataModule> wave_images(std::int64_t num_ranks) {
  const at::Tensor place = at::arange(48 * 3 * 8 * 10, at::kFloat).view({48, 3, 8, 10});
  const std::vector<at::Tensor> samples{place.mul(0.7).sin().mul(0.5).add(0.5), at::arange(48).remainder(10)};
  return std::make_shared<TensorData>(samples, std::vector<at::Tensor>(),
                                      DataOptions{.batch_size = 12 / num_ranks, .seed = 6});
}

std::shared_ptr<Mlp> mlp_for(const std::shared_ptr<const Transform>& transform) {
  TransformCase sample(*transform, at::kFloat, 2);
  const Batch batch = transform->apply({sample.images, sample.labels}, sample.uniforms);
  auto model = std::make_shared<Mlp>(MlpOptions{.hidden = {4}});
  at::manual_seed(3);
  model->forward(batch[0]);
  return model;
}

std::vector<at::Tensor> weights_with(const std::shared_ptr<const Transform>& transform,
                                     std::int64_t num_ranks) {
  std::vector<std::shared_ptr<Mlp>> models;
  for (std::int64_t rank = 0; rank < num_ranks; ++rank) models.push_back(mlp_for(transform));
  const auto fit = [&](const std::shared_ptr<ProcessGroup>& group, std::int64_t rank) {
    TransformedData data(wave_images(num_ranks), {.train = transform});
    Trainer({.max_epochs = 2, .gradient_shards = 4, .optimizer = adamw(), .process_group = group})
        .fit(models[static_cast<std::size_t>(rank)], data);
  };
  fit_on_ranks(num_ranks, fit);
  return RankRun::on_host(models.front()->parameters());
}

// Also those that mix the samples of a batch: each gradient shard is a batch of its own.
TEST(TransformedRuns, AreTheSameForAnyNumberOfRanksWithGradientShards) {
  for (const auto& [name, transform] : every_transform()) {
    SCOPED_TRACE(name);
    const auto expected = weights_with(transform, 1);
    for (const std::int64_t num_ranks : {2, 4})
      expect_same_weights(weights_with(transform, num_ranks), expected);
  }
}

struct StopInSecondEpoch : Callback {
  void on_train_batch_end(Trainer& trainer, Module&) override {
    if (trainer.progress().global_step == 6) trainer.request_stop();  // an epoch has four steps
  }
};

TEST(TransformedRuns, AreTheSameAfterAResumeInMidEpoch) {
  for (const auto& named : every_transform()) {
    const auto& transform = named.second;  // clang 14 captures no structured binding
    SCOPED_TRACE(named.first);
    const auto fit = [&](const FitOptions& how, const std::vector<std::shared_ptr<Callback>>& callbacks) {
      const auto model = mlp_for(transform);
      TransformedData data(wave_images(1), {.train = transform});
      const FitResult result =
          Trainer({.max_epochs = 3, .optimizer = adamw(), .callbacks = callbacks}).fit(model, data, how);
      return std::pair(RankRun::on_host(model->parameters()), result);
    };
    const auto [expected, straight] = fit({}, {});
    const Scratch scratch;
    const ModelCheckpointOptions saves{.dirpath = scratch / "checkpoints"};
    const auto [cut, stopped] =
        fit({}, {std::make_shared<ModelCheckpoint>(saves), std::make_shared<StopInSecondEpoch>()});
    ASSERT_EQ(stopped.progress.global_step, 6);
    EXPECT_FALSE(cut.front().equal(expected.front()));
    const auto [resumed, rest] = fit({.resume = saves.dirpath}, {});
    EXPECT_EQ(rest.progress.global_step, straight.progress.global_step);
    expect_same_weights(resumed, expected);
  }
}

}  // namespace
}  // namespace kindling
