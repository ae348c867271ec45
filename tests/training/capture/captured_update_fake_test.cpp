// The graphs of a device after backward, compared with eager steps.
#include <ATen/ops/randn_like.h>
#include <gtest/gtest.h>

#include "fake_accelerator.h"
#include "graph/device/device_graph.h"
#include "kindling/optim/cosine_schedules.h"
#include "kindling/optim/sgd.h"
#include "training/capture/captured_update.h"
#include "training/capture/step_graph.h"

namespace kindling {
namespace {

class FakeRecordedUpdate : public testing::Test {
 protected:
  void SetUp() override {
    if (!why_no_graph(fake::device()).empty()) GTEST_SKIP() << "LibTorch has no graphs of devices";
  }
  // Returns the graphs launched by the second of two fits with the same options.
  static std::int64_t expect_same_with_graphs(const std::function<TrainerOptions()>& options) {
    const auto fit = [&](const char* step_graph) {
      TrainerOptions asked = options();
      asked.num_gpus = 1;
      fake::reset_counts();
      return graph_fit(step_graph, std::move(asked));
    };
    const GraphFit eager = fit("off"), recorded = fit("on");
    EXPECT_EQ(recorded.said, "");
    expect_same_fit(recorded, eager);
    return fake::counts().graph_replays;
  }
};

OptimizerFactory adam_rule() {
  return [](ParameterGroups p) { return std::make_unique<Adam>(std::move(p), AdamOptions{.lr = 0.01}); };
}

// Counts on the host, as a user's rule may.
class EverySecondAdam : public Adam {
 public:
  using Adam::Adam;

 private:
  void update(const Update& update) override {
    if (++num_updates_ % 2 == 0) Adam::update(update);
  }
  std::int64_t num_updates_ = 0;
};

// A change that a callback makes to an optimizer between two steps.
class OptimizerMeddler : public Callback {
 public:
  explicit OptimizerMeddler(std::function<void(Optimizer&, std::int64_t step)> meddle)
      : meddle_(std::move(meddle)) {}
  void on_before_optimizer_step(Trainer&, Module&, Optimizer& optimizer) override {
    meddle_(optimizer, ++num_steps_);
  }

 private:
  std::function<void(Optimizer&, std::int64_t)> meddle_;
  std::int64_t num_steps_ = 0;
};

TEST_F(FakeRecordedUpdate, LaunchesThreeGraphsPerStep) {
  const auto replays = [&](double clip) {
    return expect_same_with_graphs([&] { return TrainerOptions{.gradient_clip_val = clip}; });
  };
  // At least 19 of 36 steps are replayed, each with measurements and the update.
  EXPECT_GT(replays(0.5), 3 * 15);
}

// Three graphs per step as with a rate that stays.
TEST_F(FakeRecordedUpdate, ReplaysUpdatesWhoseRateFollowsASchedule) {
  const auto replays = expect_same_with_graphs(
      [] { return TrainerOptions{.gradient_clip_val = 0.5, .schedule = cosine_schedule()}; });
  EXPECT_GT(replays, 3 * 15);
}

TEST_F(FakeRecordedUpdate, FollowsTheRate) {
  expect_same_with_graphs([] {
    return TrainerOptions{
        .schedule = cosine_schedule(),
        .callbacks = {std::make_shared<OptimizerMeddler>([](Optimizer& rule, std::int64_t step) {
          if (step > 20) rule.set_lr(0.5 * rule.lr());
        })}};
  });
  expect_same_with_graphs([] {
    return TrainerOptions{
        .callbacks = {std::make_shared<OptimizerMeddler>([](Optimizer& rule, std::int64_t step) {
          if (step == 20) rule.set_lr(0.002);
          if (step == 28) rule.set_lr(0.01);
        })}};
  });
}

TEST_F(FakeRecordedUpdate, FollowsAUserDefinedRateTensor) {
  expect_same_with_graphs([] {
    const auto rate = std::make_shared<at::Tensor>();
    return TrainerOptions{
        .callbacks = {std::make_shared<OptimizerMeddler>([rate](Optimizer& rule, std::int64_t step) {
          if (step == 1)
            rule.set_lr(0, *rate = at::full({}, 0.01, at::dtype(at::kDouble).device(fake::device())));
          rate->mul_(0.97);
        })}};
  });
}

TEST_F(FakeRecordedUpdate, FollowsLoadedState) {
  for (const std::int64_t at : {15, 16, 17})
    expect_same_with_graphs([at] {
      const auto saved = std::make_shared<StateDict>();
      return TrainerOptions{
          .callbacks = {std::make_shared<OptimizerMeddler>([saved, at](Optimizer& rule, std::int64_t step) {
            if (step == 4) *saved = copy_to(rule.state_dict(), cpu());
            if (step == at) rule.load_state_dict(*saved);
          })}};
    });
}

TEST_F(FakeRecordedUpdate, FollowsReplacedGradients) {
  expect_same_with_graphs([] {
    return TrainerOptions{
        .gradient_clip_val = 0.5,
        .callbacks = {std::make_shared<OptimizerMeddler>([](Optimizer& rule, std::int64_t step) {
          at::Tensor parameter = rule.parameters()[static_cast<std::size_t>(step) % 3];
          if (step % 5 == 0) parameter.mutable_grad() = parameter.grad() * 0.5;
          if (step % 7 == 0) parameter.mutable_grad() = at::Tensor();
        })}};
  });
}

TEST_F(FakeRecordedUpdate, FollowsTheMomentum) {
  expect_same_with_graphs([] {
    return TrainerOptions{
        .optimizer =
            [](ParameterGroups p) {
              return std::make_unique<Sgd>(std::move(p), SgdOptions{.lr = 0.05, .momentum = 0.9});
            },
        .callbacks = {std::make_shared<OptimizerMeddler>([](Optimizer& rule, std::int64_t step) {
          if (step == 20) rule.set_momentum(0.5);
        })}};
  });
}

TEST_F(FakeRecordedUpdate, DoesNotCaptureOtherRules) {
  expect_same_with_graphs([] {
    return TrainerOptions{.optimizer = [](ParameterGroups p) {
      return std::make_unique<EverySecondAdam>(std::move(p), AdamOptions{.lr = 0.01});
    }};
  });
}

// A step that is not finite, in the middle of replayed ones.
TEST_F(FakeRecordedUpdate, SkipsNonfiniteSteps) {
  for (const char* on_nonfinite : {"stop", "skip", "ignore"})
    for (const double clip : {0., 0.5}) {
      SCOPED_TRACE(std::string(on_nonfinite) + (clip > 0 ? " with clipping" : ""));
      const auto fit = [&](const char* step_graph) {
        TrainerOptions options{
            .num_gpus = 1, .gradient_clip_val = clip, .log_every_n_steps = 1, .optimizer = adam_rule()};
        options.on_nonfinite = on_nonfinite;
        options.callbacks = {std::make_shared<ModelMeddler>([](CountedNet& net, std::int64_t batch) {
          const torch::NoGradGuard no_grad;
          if (batch == 20) net.mask.fill_(std::numeric_limits<double>::infinity());
          if (batch == 21) net.mask.fill_(0.5);
        })};
        return graph_fit(step_graph, std::move(options), [](CountedNet& net) {
          net.extra = [](CountedNet& model, const Batch&, const at::Tensor& loss) {
            if (model.mask.is_cpu()) model.mask = model.mask.to(loss.device());
            return loss * model.mask;
          };
        });
      };
      const GraphFit eager = fit("off"), recorded = fit("on");
      EXPECT_EQ(recorded.records.size(), eager.records.size());
      for (std::size_t i = 0; i < eager.values.size(); ++i)
        EXPECT_TRUE(at::allclose(recorded.values[i], eager.values[i], 0, 0, /*equal_nan=*/true)) << i;
    }
}

// An optimizer and its captured update without a trainer.
struct LoneUpdate {
  explicit LoneUpdate(at::Device where = fake::device()) {
    for (at::Tensor& parameter : parameters) {
      parameter = at::ones({4}, where).set_requires_grad(true);
      parameter.mutable_grad() = at::ones({4}, where);
    }
    rule.emplace(ParameterGroups(parameters), SgdOptions{.lr = 0.125});
  }
  void step() {
    recorded.step(*rule, [&] { rule->step(); });
  }
  // Measures a norm, under the name of the first parameter with a gradient.
  void measure(const at::Tensor& loss) {
    recorded.measure(*rule, {&loss, 1}, [&] {
      const bool is_first = parameters[0].grad().defined();
      log.mark(is_first ? "first" : "second", (rule->gradients()[0] * loss).sum());
    });
  }

  std::vector<at::Tensor> parameters = std::vector<at::Tensor>(2);
  std::optional<Sgd> rule{};
  EpochLog log{fake::device()};
  CapturedUpdate recorded{fake::device(), log};
};

// A loss of the device.
at::Tensor loss_of(double value) { return at::full({}, value, fake::device()); }

TEST_F(FakeRecordedUpdate, MeasuresTheGivenLossesAndGradients) {
  LoneUpdate update;
  const at::Tensor gradient = update.parameters[0].grad(), losses[] = {loss_of(1), loss_of(2)};
  std::int64_t row = 0;
  for (const int loss : {0, 0, 0, 1, 0})
    for (const std::size_t place : {0, 0, 0, 1}) {
      update.parameters[place].mutable_grad() = gradient;
      update.parameters[1 - place].mutable_grad() = at::Tensor();
      update.measure(losses[loss]);
      update.log.append({.global_step = ++row, .batch = row, .lr = 0, .weight = 1});
      update.log.move_to_host();
      for (const std::size_t named : {0, 1}) {
        const auto column = update.log.find_column(named == 0 ? "first" : "second", EpochLog::Kind::mean);
        const auto value = column ? update.log.value(row - 1, *column) : std::nullopt;
        const auto expected = named == place ? std::optional(4. * (loss + 1)) : std::nullopt;
        EXPECT_EQ(value, expected) << "row " << row;
      }
    }
}

TEST_F(FakeRecordedUpdate, FollowsParametersThatShrink) {
  LoneUpdate update;
  for (int i = 0; i < 4; ++i) update.step();
  const at::Tensor whole = update.parameters[0].detach(), gradient = update.parameters[0].grad();
  update.parameters[0].mutable_grad() = at::Tensor();
  update.parameters[0].set_data(whole.narrow(0, 0, 2));
  update.parameters[0].mutable_grad() = gradient.narrow(0, 0, 2);
  for (int i = 0; i < 4; ++i) update.step();
  EXPECT_TRUE(same(whole.cpu(), at::tensor({0.F, 0.F, 0.5F, 0.5F})));
}

TEST_F(FakeRecordedUpdate, FollowsAHostRate) {
  LoneUpdate update;
  const at::Tensor rate = at::full({}, 0.125);
  update.rule->set_lr(0, rate);
  for (int i = 0; i < 4; ++i) update.step();
  rate.fill_(0.25);
  update.step();
  EXPECT_TRUE(same(update.parameters[0].detach().cpu(), at::full({4}, 0.25)));
}

TEST_F(FakeRecordedUpdate, FollowsRatesAndParametersThatMove) {
  LoneUpdate update;
  const at::Tensor rates[] = {loss_of(0.125), loss_of(0.25)};
  for (const int rate : {0, 0, 0, 1}) {
    update.rule->set_lr(0, rates[rate]);
    update.step();
  }
  EXPECT_TRUE(same(update.parameters[0].detach().cpu(), at::full({4}, 0.375)));
  update.rule->set_lr(0, rates[0]);
  const at::Tensor former = update.parameters[0].detach();
  update.parameters[0].set_data(former.clone());
  update.step();
  EXPECT_TRUE(same(update.parameters[0].detach().cpu(), at::full({4}, 0.25)));
  EXPECT_TRUE(same(former.cpu(), at::full({4}, 0.375)));
}

TEST_F(FakeRecordedUpdate, FollowsAHostLoss) {
  LoneUpdate update;
  const at::Tensor loss = at::full({}, 1.);
  for (std::int64_t row = 0; row < 5; ++row) {
    loss.fill_(row);
    update.measure(loss);
    update.log.append({.global_step = row + 1, .batch = row + 1, .lr = 0, .weight = 1});
    update.log.move_to_host();
    EXPECT_EQ(update.log.value(row, *update.log.find_column("first", EpochLog::Kind::mean)), 4. * row);
  }
}

// A graph of the device would hold nothing of it.
TEST_F(FakeRecordedUpdate, DoesNotCaptureHostParameters) {
  LoneUpdate update(at::kCPU);
  for (int i = 0; i < 5; ++i) {
    update.measure(at::scalar_tensor(1));
    update.step();
  }
  EXPECT_TRUE(same(update.parameters[0].detach(), at::full({4}, 0.375)));
}

TEST_F(FakeRecordedUpdate, RaisesVersionsForAutograd) {
  LoneUpdate update;
  update.parameters[1].mutable_grad() = at::Tensor();
  for (int i = 0; i < 5; ++i) {
    const auto first = update.parameters[0]._version(), second = update.parameters[1]._version();
    update.step();
    EXPECT_GT(update.parameters[0]._version(), first) << i;
    EXPECT_EQ(update.parameters[1]._version(), second) << i;
  }
}

TEST_F(FakeRecordedUpdate, DistinguishesLayouts) {
  const at::Tensor matrix = at::zeros({4, 4}, fake::device());
  const at::Tensor others[] = {matrix,
                               matrix.narrow(0, 0, 2),
                               matrix.narrow(0, 1, 3),
                               matrix.t(),
                               matrix.flatten(),
                               matrix.view(at::kInt),
                               at::zeros({4, 4}, fake::device()),
                               at::Tensor()};
  for (const at::Tensor& one : others)
    for (const at::Tensor& other : others) {
      CaptureKey key, other_key;
      key.add(one);
      other_key.add(other);
      EXPECT_EQ(key == other_key, one.is_same(other));
    }
}

// Eight regions are kept; one that was dropped is recorded again.
TEST_F(FakeRecordedUpdate, KeepsAFewRegions) {
  EpochLog log(fake::device());
  CapturedRegion part(fake::device(), log);
  const at::Tensor source = at::ones({1 << 16}, fake::device()), target = at::zeros_like(source);
  const auto run = [&](double number) {
    CaptureKey key;
    key.add(number);
    for (int i = 0; i < 3; ++i) part.run(key, [&] { target.copy_(source + number); });
    EXPECT_TRUE(same(target.cpu(), at::full({1 << 16}, static_cast<float>(1 + number))));
  };
  for (int number = 0; number < 8; ++number) run(number);
  const auto live_bytes = fake::counts().live_bytes[0];
  for (int number = 8; number < 20; ++number) run(number);
  run(0);
  EXPECT_LE(fake::counts().live_bytes[0], live_bytes);
}

}  // namespace
}  // namespace kindling
