// Sharded optimizer state: which rank has what, and that training does not change.
#include "training/parallel/optimizer_shards.h"

#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include "kindling/base/error.h"
#include "kindling/checkpoint/checkpoint_folder.h"
#include "kindling/nn/manual_module.h"
#include "kindling/optim/adagrad.h"
#include "kindling/optim/lamb.h"
#include "kindling/optim/muon.h"
#include "kindling/optim/rmsprop.h"
#include "kindling/optim/sgd.h"
#include "kindling/tensors/checkpoint_file.h"
#include "kindling/training/exponential_moving_average.h"
#include "kindling/training/model_checkpoint.h"
#include "optim/every_rule.h"
#include "optim/sharded_state.h"
#include "support/scratch.h"
#include "training/parallel/rank_runs.h"

namespace kindling {
namespace {

using Change = std::function<void(TrainerOptions&, std::int64_t)>;

TEST(OwnersOf, AreBalancedAndDependOnSizesOnly) {
  std::vector<at::Tensor> parameters;
  std::int64_t total = 0, largest = 0;
  for (std::int64_t i = 0; i < 40; ++i) {
    parameters.push_back(at::zeros({1 + (i * 37) % 23, 1 + i % 7}));
    total += parameters.back().numel();
    largest = std::max(largest, parameters.back().numel());
  }
  for (const std::int64_t size : {1, 2, 3, 8}) {
    const auto owners = owners_of(parameters, size);
    std::vector<std::int64_t> load(static_cast<std::size_t>(size));
    for (std::size_t i = 0; i < owners.size(); ++i)
      load.at(static_cast<std::size_t>(owners[i])) += parameters[i].numel();
    EXPECT_LE(*std::ranges::max_element(load), total / size + largest);
    for (at::Tensor& parameter : parameters) parameter = parameter.detach().clone();
    EXPECT_EQ(owners_of(parameters, size), owners);
  }
  EXPECT_EQ(owners_of(std::vector{at::zeros({3}), at::zeros({9}), at::zeros({5}), at::zeros({2})}, 2),
            (std::vector<std::int64_t>{1, 0, 1, 1}));
}

// Large and small parameters of several dtypes and memory layouts.
std::vector<at::Tensor> parameters_of(std::int64_t rank) {
  at::manual_seed(20 + static_cast<std::uint64_t>(rank));
  std::vector<at::Tensor> all{at::randn({300, 100}),
                              at::randn({300, 100}).t(),
                              at::randn({64, 32, 3, 3}).contiguous(at::MemoryFormat::ChannelsLast),
                              at::randn({2, 100}).t(),
                              at::randn({5}),
                              at::randn({3, 4}).t(),
                              at::randn({}),
                              at::randn({0, 3}),
                              at::randn({20'000}, at::kDouble),
                              at::randn({7}, at::kDouble)};
  for (at::Tensor& parameter : all) parameter.set_requires_grad(true);
  return all;
}

TEST(OptimizerShard, BroadcastsEachParameterFromItsOwner) {
  for (const std::int64_t size : {2, 3}) {
    std::vector<std::vector<at::Tensor>> after(static_cast<std::size_t>(size));
    std::vector<std::vector<at::Tensor>> before;
    for (std::int64_t rank = 0; rank < size; ++rank) before.push_back(parameters_of(rank));
    std::vector<std::vector<at::Tensor>> parameters = before;
    for (auto& of_rank : before)
      for (at::Tensor& parameter : of_rank) parameter = parameter.detach().clone();
    on_ranks(size, [&](ProcessGroup& group) {
      const auto rank = static_cast<std::size_t>(group.rank());
      Sgd sgd(parameters[rank], {.lr = 0.5});
      OptimizerShard shard;
      for (int step = 0; step < 2; ++step) {
        for (at::Tensor& parameter : parameters[rank]) parameter.mutable_grad() = at::ones_like(parameter);
        shard.step(group, sgd, [&] { sgd.step(); });
        for (const at::Tensor& parameter : parameters[rank]) EXPECT_TRUE(parameter.grad().defined());
      }
      for (const at::Tensor& parameter : parameters[rank]) after[rank].push_back(parameter.detach().clone());
    });
    const auto owners = owners_of(before[0], size);
    for (std::size_t i = 0; i < owners.size(); ++i)
      for (const auto& of_rank : after)
        EXPECT_TRUE(of_rank[i].equal(before[static_cast<std::size_t>(owners[i])][i] - 0.5 - 0.5)) << i;
  }
}

TEST(OptimizerShard, RestoresGradientsWhenAnUpdateThrows) {
  on_ranks(2, [](ProcessGroup& group) {
    std::vector<at::Tensor> parameters = parameters_of(0);
    for (at::Tensor& parameter : parameters) parameter.mutable_grad() = at::ones_like(parameter);
    Sgd sgd(parameters);
    OptimizerShard shard;
    EXPECT_THROW(shard.step(group, sgd, [] { throw std::runtime_error("no"); }), std::runtime_error);
    for (const at::Tensor& parameter : parameters) EXPECT_TRUE(parameter.grad().defined());
  });
}

// Counts the state's numbers on each rank after every update.
class StateCounter : public Callback {
 public:
  void on_after_optimizer_step(Trainer&, Module& model, Optimizer& optimizer) override {
    numbers = 0;
    for (const auto& [name, tensor] : optimizer.state_dict().tensors) numbers += tensor.numel();
    for (const at::Tensor& parameter : model.parameters())
      has_gradients = has_gradients && parameter.grad().defined();
  }
  std::int64_t numbers = 0;
  bool has_gradients = true;
};

std::shared_ptr<Module> wide_mlp() { return mlp({200, 16}); }  // the first layer is a large parameter

void expect_same(const RankRun& one, const RankRun& other) {
  const auto a = one.weights(), b = other.weights();
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(a[i].equal(b[i])) << i;
  for (const char* name : {"train_loss", "val_loss"})
    EXPECT_EQ(one.result.metrics.at(name), other.result.metrics.at(name)) << name;
}

TEST(ShardedOptimizerState, TrainsBitIdenticallyWithAPartOfTheStatePerRank) {
  const std::vector<std::pair<std::string, OptimizerFactory>> rules{
      {"adamw", adamw()},
      {"sgd",
       [](ParameterGroups of) {
         return std::make_unique<Sgd>(std::move(of), SgdOptions{.lr = 0.05, .momentum = 0.9});
       }},
      {"rmsprop", [](ParameterGroups of) { return std::make_unique<RmsProp>(std::move(of)); }},
      {"adagrad", [](ParameterGroups of) { return std::make_unique<Adagrad>(std::move(of)); }},
      {"lamb", [](ParameterGroups of) { return std::make_unique<Lamb>(std::move(of)); }},
      {"muon", [](ParameterGroups of) {
         return std::make_unique<Muon>(std::move(of), MuonOptions{.adamw_lr = 1e-2});
       }}};
  for (const auto& named : rules)
    for (const std::int64_t size : {2, 4}) {
      const auto& rule = named.second;  // clang 14 captures no structured binding
      SCOPED_TRACE(std::string(named.first) + ", " + std::to_string(size) + " processes");
      std::vector<std::shared_ptr<StateCounter>> counters(static_cast<std::size_t>(size));
      const auto fit = [&](bool is_sharded) {
        const auto runs = run_ranks(
            size,
            [&](TrainerOptions& options, std::int64_t rank) {
              options.max_epochs = 2;
              options.optimizer = rule;
              options.shard_optimizer_state = is_sharded;
              options.accumulate_grad_batches = size == 2 ? 3 : 1;
              auto& counter = counters[static_cast<std::size_t>(rank)];
              counter = std::make_shared<StateCounter>();
              options.callbacks = {counter};
            },
            wide_mlp);
        expect_replicas(runs);
        return runs[0];
      };
      const RankRun whole = fit(false);
      const std::int64_t numbers = counters[0]->numbers;
      expect_same(fit(true), whole);
      std::int64_t sum = 0;
      for (const auto& counter : counters) {
        EXPECT_LT(counter->numbers, numbers);
        EXPECT_TRUE(counter->has_gradients);
        sum += counter->numbers;
      }
      EXPECT_EQ(sum, numbers);
    }
}

TEST(ShardedOptimizerState, SkipsStepsAndAveragesAsWithoutSharding) {
  const auto fit = [&](bool is_sharded, const char* precision) {
    bool spoils = false;
    const auto runs = run_ranks(
        2,
        [&](TrainerOptions& options, std::int64_t) {
          options.shard_optimizer_state = is_sharded;
          options.on_nonfinite = "skip";
          options.precision = precision;
          options.master_weights = options.precision == "bf16-true";
          options.callbacks = {std::make_shared<ExponentialMovingAverage>()};
        },
        [&] {
          auto model = std::make_shared<Spoilt>();
          model->forward(at::zeros({1, 100}));
          model->spoils = std::exchange(spoils, true);  // that of rank 1
          return model;
        });
    expect_replicas(runs);
    return runs[0];
  };
  for (const char* precision : {"32-true", "16-mixed", "64-true", "bf16-true"}) {
    SCOPED_TRACE(precision);
    expect_same(fit(true, precision), fit(false, precision));
  }
}

// Two parts with an optimizer each; draws nothing, as threads would draw in no order.
class TwoParts : public ManualModule {
 public:
  TwoParts() {
    first = register_module("first", torch::nn::Linear(100, 8));
    second = register_module("second", torch::nn::Linear(8, 1));
  }
  NamedOptimizers configure_named_optimizers() override {
    NamedOptimizers optimizers;
    optimizers["first"] = std::make_unique<Adam>(ParameterGroups(*first), AdamOptions{.lr = 0.02});
    optimizers["second"] =
        std::make_unique<Sgd>(ParameterGroups(*second), SgdOptions{.lr = 0.1, .momentum = 0.5});
    return optimizers;
  }
  at::Tensor loss_of(const Batch& batch) {
    return second->forward(first->forward(batch[0].flatten(1)).tanh()).sub(0.5).square().mean();
  }
  at::Tensor training_step(const Batch& batch) override {
    update("first", loss_of(batch));
    const at::Tensor loss = loss_of(batch);
    update("second", loss);
    log("train_loss", loss);
    return loss;
  }
  void validation_step(const Batch& batch) override { log("val_loss", loss_of(batch)); }
  torch::nn::Linear first{nullptr}, second{nullptr};
};

TEST(ShardedOptimizerState, IsShardedForEachOfSeveralOptimizers) {
  const auto fit = [](bool is_sharded) {
    const Scratch scratch;
    const auto runs = run_ranks(
        2,
        [&](TrainerOptions& options, std::int64_t) {
          options.gradient_clip_val = 0;
          options.optimizer = nullptr;
          options.shard_optimizer_state = is_sharded;
          options.callbacks = {std::make_shared<ModelCheckpoint>(
              ModelCheckpointOptions{.dirpath = scratch / "c", .every_n_steps = 4})};
        },
        [] { return std::make_shared<TwoParts>(); },
        /*num_samples=*/48);
    expect_replicas(runs);
    StateDict saved = load_checkpoint(list_checkpoints(scratch / "c").back().path);
    return std::pair(runs[0], saved);
  };
  const auto [sharded, saved] = fit(true);
  const auto [whole, expected] = fit(false);
  expect_same(sharded, whole);
  for (const auto& [name, tensor] : expected.tensors) {
    if (name.find("random.") != std::string::npos) continue;
    ASSERT_NE(saved.find(name), nullptr) << name;
    EXPECT_TRUE(saved.find(name)->equal(tensor)) << name;
  }
}

Change saving_into(const std::filesystem::path& folder, bool is_sharded) {
  return [=](TrainerOptions& options, std::int64_t) {
    options.shard_optimizer_state = is_sharded;
    options.callbacks = {std::make_shared<ModelCheckpoint>(
        ModelCheckpointOptions{.dirpath = folder, .every_n_steps = 1, .keep_last = 100})};
  };
}

void expect_same_files(const std::filesystem::path& one, const std::filesystem::path& other) {
  const auto a = list_checkpoints(one), b = list_checkpoints(other);
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    SCOPED_TRACE(a[i].path.filename().string());
    const StateDict of_one = load_checkpoint(a[i].path), of_other = load_checkpoint(b[i].path);
    ASSERT_EQ(of_one.tensors.size(), of_other.tensors.size());
    for (std::size_t k = 0; k < of_one.tensors.size(); ++k) {
      EXPECT_EQ(of_one.tensors[k].first, of_other.tensors[k].first);
      EXPECT_EQ(of_one.tensors[k].second.scalar_type(), of_other.tensors[k].second.scalar_type());
      if (of_one.tensors[k].first.find("random.") != std::string::npos) continue;  // threads draw from one
      EXPECT_TRUE(of_one.tensors[k].second.equal(of_other.tensors[k].second)) << of_one.tensors[k].first;
    }
    for (const auto& [name, value] : of_one.metadata) {
      if (name == "run_id") continue;
      EXPECT_EQ(value, of_other.metadata.at(name)) << name;
    }
  }
}

TEST(ShardedOptimizerState, IsSavedLikeUnshardedState) {
  for (const std::int64_t size : {2, 4}) {
    const Scratch scratch;
    run_ranks(size, saving_into(scratch / "sharded", true), wide_mlp);
    run_ranks(size, saving_into(scratch / "whole", false), wide_mlp);
    expect_same_files(scratch / "sharded", scratch / "whole");
  }
}

TEST(ShardedOptimizerState, ResumesBitIdenticallyWithOrWithoutSharding) {
  const Scratch scratch;
  const RankRun whole = run_ranks(2, saving_into(scratch / "c", true), wide_mlp)[0];
  for (const CheckpointInfo& checkpoint : list_checkpoints(scratch / "c"))
    for (const bool is_sharded : {true, false}) {
      SCOPED_TRACE(checkpoint.path.filename().string() + (is_sharded ? ", sharded" : ""));
      const auto groups = ProcessGroup::from_threads(2, {.timeout_s = 60});
      std::vector<std::shared_ptr<Module>> models{wide_mlp(), wide_mlp()};
      std::vector<std::int64_t> numbers(2);
      on_ranks(groups, [&](ProcessGroup& group) {
        const auto rank = static_cast<std::size_t>(group.rank());
        TrainerOptions options = options_for(groups[rank]);
        const auto counter = std::make_shared<StateCounter>();
        options.shard_optimizer_state = is_sharded;
        options.callbacks = {counter};
        TensorData data = rank_images(2);
        Trainer(options).fit(models[rank], data, {.resume = checkpoint.path});
        numbers[rank] = counter->numbers;
      });
      if (checkpoint.global_step < 15) {
        EXPECT_EQ(numbers[0] == numbers[1], !is_sharded);
      }
      for (const auto& model : models)
        for (std::size_t i = 0; i < model->parameters().size(); ++i)
          EXPECT_TRUE(model->parameters()[i].equal(whole.weights()[i])) << i;
    }
}

// With gradient_shards runs are bit-identical for any number of ranks, so a difference would come from
// resuming.
TEST(ShardedOptimizerState, ResumesWithAnotherNumberOfRanks) {
  const Scratch scratch;
  const auto options_of = [&](const std::shared_ptr<ProcessGroup>& group, bool saves) {
    TrainerOptions options = options_for(group);
    options.gradient_shards = 4;
    options.shard_optimizer_state = true;
    if (saves)
      options.callbacks = {std::make_shared<ModelCheckpoint>(
          ModelCheckpointOptions{.dirpath = scratch / "c", .every_n_epochs = 1, .keep_last = 100})};
    return options;
  };
  const auto fit = [&](std::int64_t size, const std::filesystem::path& from) {
    std::vector<std::shared_ptr<Module>> models;
    for (std::int64_t rank = 0; rank < size; ++rank) {
      at::manual_seed(3);
      models.push_back(wide_mlp());
    }
    const auto run = [&](const std::shared_ptr<ProcessGroup>& group, std::int64_t rank) {
      TensorData data = rank_images(size, /*num_samples=*/48);
      Trainer(options_of(group, from.empty()))
          .fit(models[static_cast<std::size_t>(rank)], data, {.resume = from});
    };
    if (size == 1) {
      run(nullptr, 0);
    } else {
      const auto groups = ProcessGroup::from_threads(size, {.timeout_s = 60});
      on_ranks(groups, [&](ProcessGroup& group) {
        run(groups[static_cast<std::size_t>(group.rank())], group.rank());
      });
    }
    return models[0];
  };
  const auto whole = fit(4, {});
  const auto checkpoints = list_checkpoints(scratch / "c");
  ASSERT_GE(checkpoints.size(), 3U);
  for (const std::int64_t size : {1, 2, 4}) {
    SCOPED_TRACE(size);
    const auto model = fit(size, checkpoints.front().path);
    for (std::size_t i = 0; i < model->parameters().size(); ++i)
      EXPECT_TRUE(model->parameters()[i].equal(whole->parameters()[i])) << i;
  }
}

// A factory may create an optimizer with state, for example from a run in Python: each rank keeps its part.
TEST(ShardedOptimizerState, ShardsStateThatExistsFromTheStart) {
  const auto fit = [&](bool is_sharded) {
    std::vector<std::shared_ptr<StateCounter>> counters(2);
    const auto runs = run_ranks(
        2,
        [&](TrainerOptions& options, std::int64_t rank) {
          options.shard_optimizer_state = is_sharded;
          options.optimizer = [](ParameterGroups parameters) {
            auto sgd = std::make_unique<Sgd>(std::move(parameters), SgdOptions{.lr = 0.05, .momentum = 0.9});
            StateDict state = sgd->state_dict();
            for (std::size_t i = 0; i < sgd->names().size(); ++i)
              state.tensors.emplace_back(sgd->names()[i] + ".momentum_buffer",
                                         at::full_like(sgd->parameters()[i], 0.01));
            sgd->load_state_dict(state);
            return sgd;
          };
          auto& counter = counters[static_cast<std::size_t>(rank)];
          counter = std::make_shared<StateCounter>();
          options.callbacks = {counter};
        },
        wide_mlp);
    EXPECT_EQ(counters[0]->numbers == counters[1]->numbers, !is_sharded);
    return runs[0];
  };
  expect_same(fit(true), fit(false));
}

TEST(ShardedOptimizerState, IsRefusedForARuleThatIsNotPerParameter) {
  struct Own : Optimizer {
    explicit Own(ParameterGroups of) : Optimizer(std::move(of), 0.1) {}
    void update(const Update&) override {}
  };
  const auto groups = ProcessGroup::from_threads(2, {.timeout_s = 60});
  on_ranks(groups, [&](ProcessGroup& group) {
    TrainerOptions options = options_for(groups[static_cast<std::size_t>(group.rank())]);
    options.shard_optimizer_state = true;
    options.optimizer = [](ParameterGroups of) { return std::make_unique<Own>(std::move(of)); };
    TensorData data = rank_images(2);
    try {
      Trainer(options).fit(small_mlp(), data);
      ADD_FAILURE() << "it trains";
    } catch (const ConfigError& error) {
      EXPECT_NE(std::string(error.what()).find("is_per_parameter()"), std::string::npos) << error.what();
    } catch (const DistributedError& error) {  // the other rank was first
      EXPECT_NE(std::string(error.what()).find("is_per_parameter()"), std::string::npos) << error.what();
    }
  });
}

// A derived class may use all parameters at once.
TEST(ShardedOptimizerState, SupportsShippedRulesButNotClassesDerivedFromThem) {
  struct Own : AdamW {
    using AdamW::AdamW;
  };
  const at::Tensor weight = at::ones({2, 2}).requires_grad_();
  EXPECT_FALSE(Own({weight}).is_per_parameter());
  for (const auto& [name, make] : every_rule()) EXPECT_TRUE(make({weight}, "")->is_per_parameter()) << name;
}

TEST(ShardedOptimizerState, IsCompleteInASingleProcess) {
  const auto counter = std::make_shared<StateCounter>();
  run_ranks(1, [&](TrainerOptions& options, std::int64_t) {
    options.shard_optimizer_state = true;
    options.callbacks = {counter};
  });
  EXPECT_GT(counter->numbers, 2 * 1786);  // two averages of each parameter: 100 · 16 + 16 + 16 · 10 + 10
}

}  // namespace
}  // namespace kindling
