// What a device's graphs do behind backward, against the same done operator by operator.
#include <ATen/ops/randn_like.h>
#include <gtest/gtest.h>

#include "fake_accelerator.h"
#include "graph/device_graph.h"
#include "kindling/optim/cosine_schedules.h"
#include "kindling/optim/sgd.h"
#include "training/step_graph.h"

namespace kindling {
namespace {

class FakeRecordedUpdate : public testing::Test {
 protected:
  void SetUp() override {
    if (!why_no_graph(fake::device()).empty()) GTEST_SKIP() << "LibTorch has no graphs of devices";
  }
  // Graphs that have been started by the second of two fits with the same options.
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

// What a callback may do to an optimizer between two steps.
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

TEST_F(FakeRecordedUpdate, IsThreeGraphsPerStep) {
  const auto replays = [&](double clip) {
    return expect_same_with_graphs([&] { return TrainerOptions{.gradient_clip_val = clip}; });
  };
  // Of 36 steps 19 or more are replayed, each with what is measured and the update.
  EXPECT_GT(replays(0.5), 3 * 15);
}

TEST_F(FakeRecordedUpdate, FollowsTheRate) {
  expect_same_with_graphs(
      [] { return TrainerOptions{.gradient_clip_val = 0.5, .schedule = cosine_schedule()}; });
  expect_same_with_graphs([] {
    return TrainerOptions{
        .callbacks = {std::make_shared<OptimizerMeddler>([](Optimizer& rule, std::int64_t step) {
          if (step == 20) rule.set_lr(0.002);
          if (step == 28) rule.set_lr(0.01);
        })}};
  });
}

TEST_F(FakeRecordedUpdate, FollowsATensorOfTheUsersAsRate) {
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

TEST_F(FakeRecordedUpdate, FollowsStateThatIsLoaded) {
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

TEST_F(FakeRecordedUpdate, FollowsGradientsThatAreExchanged) {
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

TEST_F(FakeRecordedUpdate, LeavesRulesAloneThatMayCount) {
  expect_same_with_graphs([] {
    return TrainerOptions{.optimizer = [](ParameterGroups p) {
      return std::make_unique<EverySecondAdam>(std::move(p), AdamOptions{.lr = 0.01});
    }};
  });
}

// A step that is not finite, in the middle of replayed ones.
TEST_F(FakeRecordedUpdate, LeavesOutWhatIsNotFinite) {
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

}  // namespace
}  // namespace kindling
