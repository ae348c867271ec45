// Batch norm over all ranks, here threads, each with its own trainer.
#include "training/parallel/sync_batch_norm.h"

#include <ATen/Functions.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <mutex>

#include "kindling/base/error.h"
#include "kindling/base/log.h"
#include "kindling/nn/activation_checkpoint.h"
#include "kindling/nn/manual_module.h"
#include "training/parallel/rank_runs.h"

namespace kindling {
namespace {

// A layer of each dimension. Of one sample, the first has 100 values of a channel and the second 25: LibTorch
// refuses to norm by one.
class NormedImages : public Classifier {
 public:
  explicit NormedImages(bool is_checkpointed = false) {
    const torch::nn::BatchNorm2d norm(torch::nn::BatchNormOptions(4).momentum(0.3));
    net->push_back(torch::nn::Conv2d(torch::nn::Conv2dOptions(1, 4, 3).padding(1).bias(false)));
    if (is_checkpointed)
      net->push_back(
          ActivationCheckpoint<torch::nn::BatchNorm2d>(torch::nn::BatchNormOptions(4).momentum(0.3)));
    else
      net->push_back(norm);
    net->push_back(torch::nn::Tanh());
    net->push_back(torch::nn::Flatten(torch::nn::FlattenOptions().start_dim(2)));
    net->push_back(torch::nn::BatchNorm1d(torch::nn::BatchNormOptions(4).affine(false)));
    net->push_back(torch::nn::InstanceNorm1d(torch::nn::InstanceNorm1dOptions(4).affine(true)));
    net->push_back(torch::nn::Flatten());
    net->push_back(torch::nn::Linear(400, 10));
    register_module("net", net);
  }
  at::Tensor forward(const at::Tensor& x) override { return net->forward(x.view({x.size(0), 1, 10, 10})); }
  torch::nn::Sequential net;
};

std::shared_ptr<Module> normed_images() { return std::make_shared<NormedImages>(); }

std::function<void(TrainerOptions&, std::int64_t)> with_sync(
    const std::function<void(TrainerOptions&)>& change = {}) {
  return [change](TrainerOptions& options, std::int64_t) {
    options.sync_batchnorm = true;
    options.max_epochs = 4;  // 20 steps; the last of each epoch is of two samples
    if (change) change(options);
  };
}

double largest_difference(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (!a[i].is_floating_point()) continue;
    const at::Tensor difference = (a[i] - b[i]).abs().max() / b[i].abs().max();
    largest = std::max(largest, difference.to(at::kDouble).item<double>());
  }
  return largest;
}

double largest_difference(const RankRun& a, const RankRun& b) {
  return std::max(largest_difference(a.weights(), b.weights()), largest_difference(a.buffers(), b.buffers()));
}

// In float64, so that 20 steps of AdamW stay exact enough. Observed: 5e-15.
TEST(SyncBatchNorm, TrainsLikeASingleProcessWithTheWholeBatch) {
  for (const std::int64_t window : {1, 3}) {
    const auto change = with_sync([&](TrainerOptions& options) {
      options.precision = "64-true";
      options.accumulate_grad_batches = window;
    });
    const auto alone = run_ranks(1, change, normed_images);
    for (const std::int64_t size : {2, 4}) {
      SCOPED_TRACE(std::to_string(size) + " processes, window " + std::to_string(window));
      const auto runs = run_ranks(size, change, normed_images);
      expect_replicas(runs);
      EXPECT_LE(largest_difference(runs[0], alone[0]), 1e-12);
      EXPECT_NEAR(runs[0].result.metrics.at("val_loss"), alone[0].result.metrics.at("val_loss"), 1e-6);
    }
  }
}

// Uses SGD, because AdamW turns the last bits of gradients near 0 into whole steps.
TEST(SyncBatchNorm, StaysWithinAMillionthOverFiftyStepsInSinglePrecision) {
  const auto change = with_sync([](TrainerOptions& options) {
    options.max_epochs = 10;
    options.optimizer = [](ParameterGroups parameters) {
      return std::make_unique<Sgd>(std::move(parameters), SgdOptions{.lr = 0.05, .momentum = 0.9});
    };
  });
  const auto alone = run_ranks(1, change, normed_images), runs = run_ranks(2, change, normed_images);
  expect_replicas(runs);
  const auto a = runs[0].weights(), b = alone[0].weights();
  for (std::size_t i = 0; i < a.size(); ++i)  // and last bits of numbers near 0
    EXPECT_LE((a[i] - b[i]).abs().max().item<double>(), 1e-6 * b[i].abs().max().item<double>() + 1e-7) << i;
}

TEST(SyncBatchNorm, IsOffByDefault) {
  const auto change = [](TrainerOptions& options, std::int64_t) { options.precision = "64-true"; };
  const auto alone = run_ranks(1, change, normed_images), runs = run_ranks(2, change, normed_images);
  EXPECT_GT(largest_difference(runs[0], alone[0]), 1e-4);
}

TEST(SyncBatchNorm, IsBitIdenticalInASingleProcess) {
  const auto with = run_ranks(1, with_sync(), normed_images);
  const auto without = run_ranks(
      1, [](TrainerOptions& options, std::int64_t) { options.max_epochs = 4; }, normed_images);
  EXPECT_EQ(largest_difference(with[0], without[0]), 0);
}

TEST(SyncBatchNorm, IsRepeatedByAnActivationCheckpoint) {
  const auto change = with_sync([](TrainerOptions& options) { options.precision = "64-true"; });
  const auto checkpointed = [] { return std::make_shared<NormedImages>(/*is_checkpointed=*/true); };
  const auto plain = run_ranks(2, change, normed_images), again = run_ranks(2, change, checkpointed);
  expect_replicas(again);
  EXPECT_EQ(largest_difference(again[0], plain[0]), 0);
}

// A ManualModule weights its gradients elsewhere.
class ManualNorms : public ManualModule {
 public:
  ManualNorms() { inner = register_module("inner", std::make_shared<NormedImages>()); }
  NamedOptimizers configure_named_optimizers() override {
    NamedOptimizers optimizers;
    optimizers["all"] = std::make_unique<Sgd>(ParameterGroups(*inner), SgdOptions{.lr = 0.05});
    return optimizers;
  }
  at::Tensor training_step(const Batch& batch) override {
    const at::Tensor loss = at::cross_entropy_loss(inner->forward(batch[0]), batch[1]);
    update("all", loss);
    return loss.detach();
  }
  void validation_step(const Batch& batch) override {
    log("val_loss", at::cross_entropy_loss(inner->forward(batch[0]), batch[1]));
  }
  std::shared_ptr<NormedImages> inner;
};

TEST(SyncBatchNorm, WorksWithManualUpdates) {
  const auto change = with_sync([](TrainerOptions& options) {
    options.precision = "64-true";
    options.optimizer = {};
  });
  const auto make = [] { return std::make_shared<ManualNorms>(); };
  const auto alone = run_ranks(1, change, make);
  for (const std::int64_t size : {2, 4}) {
    const auto runs = run_ranks(size, change, make);
    expect_replicas(runs);
    EXPECT_LE(largest_difference(runs[0], alone[0]), 1e-12);
  }
}

// 16-bit numbers are normalized in float32. Of 8 significant bits, four survive sums in a different order.
TEST(SyncBatchNorm, SupportsEveryPrecision) {
  for (const char* precision : {"bf16-mixed", "bf16-true"}) {
    const auto change = [&](TrainerOptions& options, std::int64_t) {
      options.sync_batchnorm = true;
      options.max_steps = 1;
      options.precision = precision;
    };
    const auto alone = run_ranks(1, change, normed_images), runs = run_ranks(2, change, normed_images);
    expect_replicas(runs);
    EXPECT_LE(largest_difference(runs[0].buffers(), alone[0].buffers()), 1. / 16) << precision;
  }
}

TEST(SyncBatchNorm, PreventsStepCapture) {
  const auto change = with_sync([](TrainerOptions& options) {
    options.precision = "64-true";
    options.step_graph = "on";
  });
  const auto eager = with_sync([](TrainerOptions& options) { options.precision = "64-true"; });
  std::string said;
  std::mutex mutex;  // shared by both threads
  set_log_observer([&](LogLevel, const std::string& line) {
    const std::lock_guard lock(mutex);
    said += line + "\n";
  });
  const auto asked = run_ranks(2, change, normed_images);
  set_log_observer({});
  EXPECT_NE(said.find("steps are not captured: with sync_batchnorm the ranks communicate within a step"),
            std::string::npos)
      << said;
  EXPECT_EQ(largest_difference(asked[0], run_ranks(2, eager, normed_images)[0]), 0);
}

std::string refusal_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing";
}

TEST(SyncBatchNorm, RefusesUnsupportedOperations) {
  EXPECT_NE(
      refusal_of([] {
        Trainer(TrainerOptions{.max_epochs = 1, .gradient_shards = 2, .sync_batchnorm = true});
      }).find("trainer.sync_batchnorm: it is set, but with gradient_shards each shard has separate batch"),
      std::string::npos);
  on_ranks(2, [](ProcessGroup& group) {
    const std::shared_ptr<ProcessGroup> borrowed(&group, [](ProcessGroup*) {});
    const SyncBatchNorm::Scope scope({.group = borrowed});
    const at::Tensor x = at::rand({4, 3}).requires_grad_(), one = at::ones({3}), none = at::zeros({3});
    EXPECT_NE(refusal_of([&] {
                at::_native_batch_norm_legit(x, one, none, true, 0.1, 1e-5);
              }).find("operator aten::_native_batch_norm_legit: sync_batchnorm is set"),
              std::string::npos);
    EXPECT_NO_THROW(at::native_batch_norm(x, one, none, none, one, /*training=*/false, 0.1, 1e-5));
    const at::Tensor y = at::batch_norm(x, one, none, {}, {}, true, 0.1, 1e-5, false).pow(2).sum();
    EXPECT_NE(refusal_of([&] {
                torch::autograd::grad({y}, {x}, {}, /*retain_graph=*/true, /*create_graph=*/true);
              }).find("synchronized batch norm: second derivatives"),
              std::string::npos);
  });
}

TEST(SyncBatchNorm, MustBeSetOnAllRanks) {
  std::vector<std::string> errors(2);
  const auto groups = ProcessGroup::from_threads(2, {.timeout_s = 60});
  on_ranks(groups, [&](ProcessGroup& group) {
    const auto rank = static_cast<std::size_t>(group.rank());
    TrainerOptions options = options_for(groups[rank]);
    options.sync_batchnorm = rank == 1;
    TensorData data = rank_images(2);
    errors[rank] = refusal_of([&] { Trainer(options).fit(normed_images(), data); });
  });
  for (const std::string& error : errors)
    EXPECT_NE(error.find("sync_batchnorm is 'true' on rank 1 and 'false' on rank 0"), std::string::npos)
        << error;
}

}  // namespace
}  // namespace kindling
