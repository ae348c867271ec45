// Data-parallel runs, with threads as ranks, each with its own trainer.
#pragma once

#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <memory>
#include <vector>

#include "kindling/models/mlp.h"
#include "kindling/optim/adam.h"
#include "support/rank_threads.h"
#include "training/loop/small_fit.h"

namespace kindling {

// 50 samples in global batches of 12: the last one has two samples, so two of four ranks have none.
inline constexpr std::int64_t kRankSamples = 50, kGlobalBatch = 12;

inline TensorData rank_images(std::int64_t size, std::int64_t num_samples = kRankSamples) {
  const at::Tensor images =
      NoiseImages(num_samples, 10, 1).train_dataloader()->dataset().slice(0, num_samples)[0];
  const at::Tensor x = images.to(at::kFloat) / 255, labels = at::arange(num_samples).remainder(10);
  return {{x, labels}, {x.narrow(0, 0, 21), labels.narrow(0, 0, 21)}, {.batch_size = kGlobalBatch / size}};
}

inline OptimizerFactory adamw() {
  return [](ParameterGroups parameters) {
    return std::make_unique<AdamW>(std::move(parameters), AdamWOptions{.lr = 1e-2, .weight_decay = 0.1});
  };
}

inline TrainerOptions options_for(const std::shared_ptr<ProcessGroup>& group) {
  return {.max_epochs = 3,
          .gradient_clip_val = 0.5,
          .num_sanity_val_steps = 1,
          .optimizer = adamw(),
          .process_group = group};
}

struct RankRun {
  std::shared_ptr<Module> model;
  std::shared_ptr<MemoryLogger> logger = std::make_shared<MemoryLogger>();
  FitResult result;
  std::vector<at::Tensor> weights() const { return on_host(model->parameters()); }
  std::vector<at::Tensor> buffers() const { return on_host(model->buffers()); }
  static std::vector<at::Tensor> on_host(std::vector<at::Tensor> tensors) {
    for (at::Tensor& tensor : tensors) tensor = tensor.cpu();
    return tensors;
  }
};

using MakeModel = std::function<std::shared_ptr<Module>()>;

// Creates the parameters now, because threads that draw at the same time draw in random order.
inline std::shared_ptr<Mlp> mlp(std::vector<std::int64_t> hidden) {
  auto model = std::make_shared<Mlp>(MlpOptions{.hidden = std::move(hidden)});
  model->forward(at::zeros({1, 100}));
  return model;
}

inline std::shared_ptr<Module> small_mlp() { return mlp({16}); }

// Calls fit(group, rank) on a thread for each rank; of a single one here, without a group.
inline void fit_on_ranks(std::int64_t size,
                         const std::function<void(const std::shared_ptr<ProcessGroup>&, std::int64_t)>& fit,
                         const DistributedOptions& together = {.timeout_s = 60}) {
  if (size == 1) return fit(nullptr, 0);
  const auto groups = ProcessGroup::from_threads(size, together);
  on_ranks(groups,
           [&](ProcessGroup& group) { fit(groups[static_cast<std::size_t>(group.rank())], group.rank()); });
}

inline void expect_same_weights(const std::vector<at::Tensor>& ours, const std::vector<at::Tensor>& others) {
  ASSERT_EQ(ours.size(), others.size());
  for (std::size_t i = 0; i < ours.size(); ++i) EXPECT_TRUE(ours[i].equal(others[i])) << i;
}

// Returns the runs by rank; `size` 1: a single process without a group. All models but that of rank 0 start
// with different weights.
inline std::vector<RankRun> run_ranks(std::int64_t size,
                                      const std::function<void(TrainerOptions&, std::int64_t)>& change = {},
                                      const MakeModel& make = small_mlp,
                                      std::int64_t num_samples = kRankSamples,
                                      const DistributedOptions& together = {.timeout_s = 60}) {
  std::vector<RankRun> runs(static_cast<std::size_t>(size));
  for (std::size_t rank = 0; rank < runs.size(); ++rank) {
    at::manual_seed(3 + static_cast<std::uint64_t>(rank));
    runs[rank].model = make();
  }
  const auto fit = [&](const std::shared_ptr<ProcessGroup>& group, std::int64_t rank) {
    RankRun& run = runs[static_cast<std::size_t>(rank)];
    TensorData data = rank_images(size, num_samples);
    TrainerOptions options = options_for(group);
    options.loggers = {run.logger};
    if (change) change(options, rank);
    run.result = Trainer(options).fit(run.model, data);
  };
  fit_on_ranks(size, fit, together);
  return runs;
}

inline void expect_replicas(const std::vector<RankRun>& runs) {
  for (std::size_t rank = 1; rank < runs.size(); ++rank) {
    const auto ours = runs[rank].weights(), first = runs[0].weights();
    for (std::size_t i = 0; i < first.size(); ++i) EXPECT_TRUE(ours[i].equal(first[i])) << rank << ", " << i;
    const auto buffers = runs[rank].buffers(), of_first = runs[0].buffers();
    for (std::size_t i = 0; i < of_first.size(); ++i)
      EXPECT_TRUE(buffers[i].equal(of_first[i])) << rank << ", " << i;
    EXPECT_EQ(runs[rank].result.metrics.at("train_loss"), runs[0].result.metrics.at("train_loss"));
  }
}

class Normed : public Classifier {
 public:
  Normed() {
    net->push_back(torch::nn::Flatten());
    net->push_back(torch::nn::Linear(100, 8));
    net->push_back(torch::nn::BatchNorm1d(8));
    net->push_back(torch::nn::Linear(8, 10));
    register_module("net", net);
  }
  at::Tensor forward(const at::Tensor& x) override { return net->forward(x); }
  torch::nn::Sequential net;
};

// One branch is used by the batches of one rank only, one by none.
class Branches : public Mlp {
 public:
  Branches() : Mlp(MlpOptions{.hidden = {16}}) {
    sometimes = register_module("sometimes", torch::nn::Linear(10, 10));
    never = register_module("never", torch::nn::Linear(10, 10));
  }
  at::Tensor forward(const at::Tensor& x) override {
    const at::Tensor y = Mlp::forward(x);
    return uses_branch ? sometimes(y) : y;
  }
  torch::nn::Linear sometimes{nullptr}, never{nullptr};
  bool uses_branch = false;
};

// If `spoils`, the loss of the third batch of an epoch is not finite.
struct Spoilt : Mlp {
  Spoilt() : Mlp(MlpOptions{.hidden = {16}}) {}
  at::Tensor training_step(const Batch& batch) override {
    const at::Tensor loss = Mlp::training_step(batch);
    return spoils && trainer().batch_index() == 2 ? loss * std::numeric_limits<float>::quiet_NaN() : loss;
  }
  bool spoils = false;
};

class StopsAt : public Callback {
 public:
  StopsAt(std::int64_t step, FitReason reason) : step_(step), reason_(reason) {}
  void on_train_batch_end(Trainer& trainer, Module&) override {
    if (trainer.progress().global_step == step_) trainer.stop_token().request_stop(reason_);
  }

 private:
  std::int64_t step_;
  FitReason reason_;
};

}  // namespace kindling
