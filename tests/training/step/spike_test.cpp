// The effect of a loss spike on parameters, records and the app log.
#include <ATen/Functions.h>

#include "kindling/base/error.h"
#include "kindling/nn/manual_module.h"
#include "kindling/tensors/checkpoint_file.h"
#include "support/device_under_test.h"
#include "support/rank_threads.h"
#include "support/scratch.h"
#include "training/loop/resumed_fit.h"
#include "training/step/spike_fit.h"

namespace kindling {
namespace {

class Spikes : public OnDevice {
 protected:
  TrainerOptions options(const std::string& action, OptimizerFactory optimizer = {}) const {
    return {.num_gpus = num_gpus_wanted(),
            .on_spike = SpikeOptions{.window = 20, .action = action},
            .optimizer = std::move(optimizer)};
  }
  TrainerOptions untested(OptimizerFactory optimizer = {}) const {
    return {.num_gpus = num_gpus_wanted(), .optimizer = std::move(optimizer)};
  }
};
KINDLING_RUN_ON_TRAINER_DEVICES(Spikes);

TEST_P(Spikes, AreCountedAndNamedAndChangeNothing) {
  TrainerOptions tested = options("warn"), plain = untested();
  tested.max_epochs = plain.max_epochs = 2;
  const HeardWarnings warnings;
  const SpikeRun run = spike_run(tested, {.spikes = {14, 27}}),
                 expected = spike_run(plain, {.spikes = {14, 27}});
  EXPECT_TRUE(same_weights(run, expected));
  ASSERT_EQ(run.keeper->records.size(), 2U);
  for (std::size_t epoch = 0; epoch < 2; ++epoch) {
    NamedValues numbers = numbers_of(run.keeper->records[epoch]);
    EXPECT_EQ(value_of(run.keeper->records[epoch], "spikes"), 2);
    std::erase_if(numbers, [](const auto& number) { return number.first == "spikes"; });
    EXPECT_EQ(numbers, numbers_of(expected.keeper->records[epoch]));
  }
  EXPECT_EQ(warnings.texts.size(), 2U);
  EXPECT_TRUE(warnings.has("epoch 1: the loss had a spike, more than 4 spreads")) << warnings.texts.at(0);
  EXPECT_TRUE(warnings.has("in steps 14, 27;"));
  EXPECT_TRUE(warnings.has("in steps 44, 57;"));
}

TEST_P(Spikes, AreSkippedAsIfTheirBatchesWereMissing) {
  for (const auto& [name, rule] : guarded_rules())
    for (const double clip : {0., 0.5}) {
      TrainerOptions skipping = options("skip", rule), plain = untested(rule);
      skipping.max_epochs = plain.max_epochs = 2;
      skipping.gradient_clip_val = plain.gradient_clip_val = clip;
      const HeardWarnings warnings;
      const SpikeRun run = spike_run(skipping, {.spikes = {11, 30}}),
                     expected = spike_run(plain, {.without = {11, 30}});
      EXPECT_TRUE(same_weights(run, expected)) << name << ", clip " << clip;
      for (std::size_t epoch = 0; epoch < 2; ++epoch) {
        EXPECT_EQ(value_of(run.keeper->records[epoch], "spikes"), 2);
        EXPECT_EQ(value_of(run.keeper->records[epoch], "skipped_steps"), 2);
        EXPECT_EQ(value_of(run.keeper->records[epoch], "train_loss"),
                  value_of(expected.keeper->records[epoch], "train_loss"));
      }
      EXPECT_EQ(warnings.texts.size(), 2U);  // none about losses that are not finite
      EXPECT_TRUE(warnings.has("in steps 11, 30; their updates were skipped"));
    }
}

// With every reaction to a loss that is not finite. Such a loss does not enter the window.
TEST_P(Spikes, AreFoundBesideLossesThatAreNotFinite) {
  for (const char* policy : {"skip", "ignore"}) {
    TrainerOptions skipping = options("skip");
    skipping.on_nonfinite = policy;
    const bool skips = skipping.on_nonfinite == "skip";
    const SpikeRun run = spike_run(
                       skipping, {.spikes = {14, 22},
                                  .nans = skips ? std::set<std::int64_t>{12, 13} : std::set<std::int64_t>{}}),
                   expected = spike_run(untested(), {.without = skips ? std::set<std::int64_t>{12, 13, 14, 22}
                                                                      : std::set<std::int64_t>{14, 22}});
    EXPECT_TRUE(same_weights(run, expected)) << policy;
    EXPECT_EQ(value_of(run.keeper->records.at(0), "spikes"), 2);
    EXPECT_EQ(value_of(run.keeper->records.at(0), "skipped_steps"), skips ? 4 : 2);
  }
  TrainerOptions stopping = options("skip");
  const SpikeRun run = spike_run(stopping, {.spikes = {14}, .nans = {20}});
  EXPECT_EQ(run.result.diverged_step, 20);
}

TEST_P(Spikes, AreThoseOfTheMeanOverAWindowOfBatches) {
  TrainerOptions tested = options("skip");
  tested.accumulate_grad_batches = 2;
  tested.max_epochs = 2;
  const HeardWarnings warnings;
  spike_run(tested, {.spikes = {25, 26, 29}});
  EXPECT_TRUE(warnings.has("in steps 13, 15;"));
  EXPECT_TRUE(warnings.has("in steps 28, 30;"));
}

TEST_P(Spikes, DoNotLowerTheLossScale) {
  if (device_.is_cpu()) GTEST_SKIP() << "the float16 loss of the CPU overflows";
  TrainerOptions skipping = options("skip"), plain = untested();
  skipping.precision = plain.precision = "16-mixed";
  const SpikeRun run = spike_run(skipping, {.spikes = {14}}), expected = spike_run(plain, {.without = {14}});
  EXPECT_TRUE(same_weights(run, expected));
  EXPECT_TRUE(same(*run.end.find("scaler.scale"), *expected.end.find("scaler.scale")));
}

TEST_P(Spikes, OfAResumedRunAreBitIdentical) {
  const SpecialBatches special{.spikes = {11, 18, 19}};
  for (const char* action : {"warn", "skip"}) {
    TrainerOptions whole = options(action);
    whole.max_epochs = 2;
    const SpikeRun expected = spike_run(whole, special);
    EXPECT_EQ(value_of(expected.keeper->records.at(0), "spikes"), 3);
    for (const std::int64_t stop : {7, 15, 34}) {
      TrainerOptions first = whole;
      first.max_steps = stop;
      // Saves within the epoch, before max_steps ends it.
      struct Saver : Callback {
        explicit Saver(std::int64_t at) : at(at) {}
        void on_train_batch_end(Trainer& trainer, Module&) override {
          if (trainer.progress().global_step == at) saved = copy_to(trainer.state_dict(), cpu());
        }
        std::int64_t at;
        StateDict saved;
      };
      const auto saver = std::make_shared<Saver>(stop);
      first.callbacks = {saver};
      spike_run(first, special);
      ASSERT_NE(saver->saved.find("spikes.losses"), nullptr);
      const SpikeRun resumed = spike_run(whole, special, &saver->saved);
      expect_same_state(resumed.end, expected.end, std::string(action) + std::to_string(stop));
      EXPECT_EQ(numbers_of(resumed.keeper->records.back()), numbers_of(expected.keeper->records.back()));
    }
  }
}

TEST_P(Spikes, StartWithoutLossesFromARunThatHasNone) {
  TrainerOptions first = untested();
  first.max_steps = 15;
  const SpikeRun former = spike_run(first, {});
  EXPECT_EQ(former.end.find("spikes.losses"), nullptr);
  TrainerOptions tested = options("warn");
  tested.max_epochs = 2;
  const SpikeRun run = spike_run(tested, {.spikes = {5, 28}}, &former.end);
  EXPECT_EQ(value_of(run.keeper->records.at(0), "spikes"), 1);  // after ten steps
}

TEST_P(Spikes, WithoutTheOptionLeaveNoTrace) {
  const HeardWarnings warnings;
  const SpikeRun run = spike_run(untested(), {.spikes = {14}});
  EXPECT_EQ(run.keeper->records.at(0).find("spikes"), nullptr);
  EXPECT_TRUE(warnings.texts.empty());
  for (const auto& [name, tensor] : run.end.tensors) EXPECT_FALSE(name.starts_with("spikes."));
  const SpikeRun quiet = spike_run(options("skip"), {});
  EXPECT_EQ(names_of(quiet.keeper->records.at(0)), names_of(run.keeper->records.at(0)));
  EXPECT_TRUE(same_weights(quiet, spike_run(untested(), {})));
}

TEST_P(Spikes, AreTheSameInCapturedSteps) {
  std::vector<SpikeRun> runs;
  for (const char* mode : {"off", "on"}) {
    TrainerOptions skipping = options("skip");
    skipping.max_epochs = 3;
    skipping.step_graph = mode;
    runs.push_back(spike_run(skipping, {.spikes = {12, 24}}));
  }
  EXPECT_TRUE(same_weights(runs[1], runs[0]));
  expect_same_state(runs[1].end, runs[0].end, "captured");
  for (std::size_t epoch = 0; epoch < 3; ++epoch) {
    EXPECT_EQ(value_of(runs[0].keeper->records[epoch], "spikes"), 2);
    EXPECT_EQ(numbers_of(runs[1].keeper->records[epoch]), numbers_of(runs[0].keeper->records[epoch]));
  }
}

// Two models with an optimizer each; only the second one meets the spikes.
class TwoLines : public ManualModule {
 public:
  TwoLines() {
    register_module("first", first);
    register_module("second", second);
  }
  NamedOptimizers configure_named_optimizers() override {
    NamedOptimizers optimizers;
    optimizers["first"] = std::make_unique<Sgd>(ParameterGroups(*first), SgdOptions{.lr = 0.01});
    optimizers["second"] = std::make_unique<Sgd>(ParameterGroups(*second), SgdOptions{.lr = 0.01});
    return optimizers;
  }
  at::Tensor training_step(const Batch& batch) override {
    if (batch[1].numel() > 0) update("first", (first->forward(batch[0]) - batch[0].sum(1)).abs().mean());
    const at::Tensor loss = second->forward(batch[0]);
    update("second", loss);
    return loss;
  }
  std::shared_ptr<SpikyNet> first = std::make_shared<SpikyNet>();
  struct Second : SpikyNet {
    at::Tensor forward(const at::Tensor& x) override {
      const at::Tensor loss = SpikyNet::forward(x).abs().mean();
      return ++num_calls == 15 ? loss * 1000 : loss;
    }
    int num_calls = 0;
  };
  std::shared_ptr<Second> second = std::make_shared<Second>();
};

TEST_P(Spikes, OfOneOptimizerLeaveTheOthersAlone) {
  struct Watch : Callback {
    void on_train_batch_end(Trainer& trainer, Module& module) override {
      auto& model = dynamic_cast<TwoLines&>(module);
      const at::Tensor now[] = {model.first->line->weight.detach().cpu().clone(),
                                model.second->line->weight.detach().cpu().clone()};
      if (trainer.progress().global_step == 15) {
        EXPECT_FALSE(now[0].equal(before[0]));
        EXPECT_TRUE(now[1].equal(before[1]));
      } else if (trainer.progress().global_step > 1) {
        EXPECT_FALSE(now[1].equal(before[1])) << trainer.progress().global_step;
      }
      before[0] = now[0];
      before[1] = now[1];
      state = copy_to(trainer.state_dict(), cpu());
    }
    at::Tensor before[2];
    StateDict state;
  };
  const auto watch = std::make_shared<Watch>();
  const auto keeper = std::make_shared<StateKeeper>();
  TrainerOptions skipping = options("skip");
  skipping.max_epochs = 1;
  skipping.callbacks = {watch, keeper};
  TensorData data = spiky_data({});
  Trainer(skipping).fit(std::make_shared<TwoLines>(), data);
  EXPECT_EQ(value_of(keeper->records.at(0), "spikes"), 1);
  EXPECT_EQ(value_of(keeper->records.at(0), "skipped_steps"), 1);
  EXPECT_NE(watch->state.find("spikes.first.losses"), nullptr);
  EXPECT_NE(watch->state.find("spikes.second.losses"), nullptr);
}

// One rank has the spike; both skip the step.
TEST(SpikesOfRanks, AreThoseOfTheGlobalLoss) {
  for (const std::int64_t shards : {1, 2}) {
    std::vector<std::vector<SpikeRun>> runs;
    for (const std::int64_t size : {1, 2}) {
      std::vector<SpikeRun>& of_ranks = runs.emplace_back(static_cast<std::size_t>(size));
      on_ranks(size, [&](ProcessGroup& group) {
        SpikeRun& run = of_ranks[static_cast<std::size_t>(group.rank())];
        TensorData data = spiky_data({.spikes = {12, 21}}, kSpikeBatchSize / size);
        TrainerOptions options{.max_epochs = 2, .gradient_shards = shards};
        options.on_spike = SpikeOptions{.window = 20, .action = "skip"};
        options.callbacks = {run.keeper};
        options.process_group = std::shared_ptr<ProcessGroup>(std::shared_ptr<void>(), &group);
        run.result = Trainer(options).fit(run.model, data);
      });
    }
    for (const SpikeRun& run : runs[1]) {
      EXPECT_TRUE(same_weights(run, runs[1][0]));
      for (std::size_t epoch = 0; epoch < 2; ++epoch) {
        EXPECT_EQ(value_of(run.keeper->records.at(epoch), "spikes"), 2) << shards;
        EXPECT_EQ(value_of(run.keeper->records.at(epoch), "skipped_steps"), 2) << shards;
      }
      if (shards > 1) {
        EXPECT_TRUE(same_weights(run, runs[0][0]));
      }
    }
  }
}

TEST(SpikeOptions, AreChecked) {
  const auto error_of = [](SpikeOptions options) {
    return error_text<ConfigError>([&] { Trainer({.max_epochs = 1, .on_spike = options}); });
  };
  EXPECT_NE(error_of({.factor = 1}).find("TrainerOptions::on_spike"), std::string::npos);
  EXPECT_NE(error_of({.factor = 1}).find("factor"), std::string::npos);
  EXPECT_NE(error_of({.factor = std::nan("")}).find("factor"), std::string::npos);
  EXPECT_NE(error_of({.window = 7}).find("window"), std::string::npos);
  EXPECT_NE(error_of({.window = 10001}).find("window"), std::string::npos);
  EXPECT_NE(error_of({.action = "stop"}).find("action"), std::string::npos);
}

}  // namespace
}  // namespace kindling
