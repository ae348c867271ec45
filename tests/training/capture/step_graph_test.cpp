// Captured steps are bit-identical to eager steps.
#include "training/capture/step_graph.h"

#include <ATen/autocast_mode.h>
#include <gtest/gtest.h>

#include <regex>

#include "kindling/base/error.h"
#include "kindling/metrics/class_score.h"
#include "kindling/metrics/confusion_matrix.h"
#include "kindling/nn/activation_checkpoint.h"
#include "kindling/nn/carried_state.h"
#include "kindling/optim/lbfgs.h"
#include "kindling/optim/sgd.h"
#include "kindling/tensors/checkpoint_file.h"
#include "support/scratch.h"

namespace kindling {
namespace {

// Of 36 batches, one layout with 5 and one with 1 per epoch: each warms up once and is recorded twice, an
// epoch's first batch is made by the step itself as well, and so is a first replay.
constexpr std::int64_t kAllBatches = 36;

TEST(StepGraph, IsBitIdenticalToEagerSteps) {
  const GraphFit eager = graph_fit("off"), recorded = graph_fit("on");
  EXPECT_EQ(eager.num_calls, kAllBatches);
  EXPECT_LT(recorded.num_calls, kAllBatches - 15);
  EXPECT_EQ(recorded.said, "");
  expect_same_fit(recorded, eager);
}

// Convolution and pooling have other loops then. Of weights for one channel the option says nothing: they are
// both.
TEST(StepGraph, IsBitIdenticalWithChannelsLast) {
  const auto lay_out = [](CountedNet& net) {
    const at::Tensor weight = net.conv->weight.detach();
    net.conv->weight.set_data(
        weight.to(weight.options(), /*non_blocking=*/false, /*copy=*/false, at::MemoryFormat::ChannelsLast));
    ASSERT_FALSE(net.conv->forward(at::ones({2, 1, 8, 8})).is_contiguous());
    net.extra = [](CountedNet& model, const Batch& batch, const at::Tensor& loss) {
      const at::Tensor seen = torch::relu(torch::max_pool2d(model.conv->forward(batch[0]), 2));
      return loss + seen.flatten(1).square().mean();  // whose gradient lies plane by plane
    };
  };
  for (const char* precision : {"32-true", "bf16-mixed"}) {
    SCOPED_TRACE(precision);
    const GraphFit eager = graph_fit("off", {.precision = precision}, lay_out),
                   recorded = graph_fit("on", {.precision = precision}, lay_out);
    EXPECT_LT(recorded.num_calls, kAllBatches - 15);
    EXPECT_EQ(recorded.said, "");
    expect_same_fit(recorded, eager);
  }
}

TEST(StepGraph, WorksWithEveryOptionThatAffectsAStep) {
  for (const auto& [name, options] : step_option_cases()) {
    SCOPED_TRACE(name);
    const GraphFit eager = graph_fit("off", options), recorded = graph_fit("on", options);
    EXPECT_EQ(eager.num_calls, kAllBatches);
    EXPECT_LT(recorded.num_calls, kAllBatches - 15);
    EXPECT_EQ(recorded.said, eager.said);
    expect_same_fit(recorded, eager);
  }
}

// In all replays that a fit has made.
int num_native_kernels(const GraphFit& fit) {
  int num_kernels = 0;
  const std::regex line("replayed with ([0-9]+) native kernels");
  for (std::sregex_iterator at(fit.said.begin(), fit.said.end(), line), end; at != end; ++at)
    num_kernels += std::stoi((*at)[1]);
  return num_kernels;
}

TEST(StepKernels, DoNotRunWhenOff) {
  const GraphFit eager = graph_fit("off"), native = graph_fit("on", {}, {}, LogLevel::debug),
                 libtorchs = graph_fit("on", {.step_kernels = "off"}, {}, LogLevel::debug);
  EXPECT_GT(num_native_kernels(native), 4);
  EXPECT_EQ(num_native_kernels(libtorchs), 0);
  EXPECT_NE(libtorchs.said.find("with 0 native kernels (step_kernels = off)"), std::string::npos)
      << libtorchs.said;
  EXPECT_EQ(libtorchs.num_calls, native.num_calls);
  expect_same_fit(native, eager);
  expect_same_fit(libtorchs, eager);
}

TEST(StepKernels, RefuseAnUnknownSetting) {
  EXPECT_THROW(Trainer({.max_epochs = 1, .step_kernels = "on"}), ConfigError);
}

TEST(StepGraph, LogsWhatTheModelLogs) {
  const auto prepare = [](CountedNet& net) {
    net.add_metric("confusion", std::make_shared<ConfusionMatrix>());
    net.add_metric("f1", std::make_shared<ClassScore>());
    log_beside(net);
  };
  const GraphFit eager = graph_fit("off", {.log_every_n_steps = 1}, prepare),
                 recorded = graph_fit("on", {.log_every_n_steps = 1}, prepare);
  EXPECT_LT(recorded.num_calls, kAllBatches - 15);
  expect_same_fit(recorded, eager);
  ASSERT_NE(recorded.records.back().find("double_loss"), nullptr);
}

TEST(StepGraph, IsAutomaticForStaticModels) {
  EXPECT_LT(graph_fit("auto").num_calls, kAllBatches - 15);
  struct Other : CountedNet {
    bool has_static_graph() const override { return false; }
  };
  torch::manual_seed(1);
  const auto model = std::make_shared<Other>();
  TensorData data({at::randn({86, 1, 8, 8}), at::randint(5, {86})}, {}, {.batch_size = 16});
  Trainer({.max_epochs = 6}).fit(model, data);
  EXPECT_EQ(model->num_calls, kAllBatches);
}

// Models whose steps cannot be replayed: steps stay eager, the reason is logged, and all numbers are the
// same.
struct Refusal {
  std::string name, reason;
  std::function<void(CountedNet&)> prepare;
  TrainerOptions options{};
};

class RefusedSteps : public testing::TestWithParam<Refusal> {};

TEST_P(RefusedSteps, AreNotReplayed) {
  const GraphFit eager = graph_fit("off", GetParam().options, GetParam().prepare),
                 asked = graph_fit("on", GetParam().options, GetParam().prepare);
  EXPECT_NE(asked.said.find("step_graph: steps are not captured: "), std::string::npos);
  EXPECT_NE(asked.said.find(GetParam().reason), std::string::npos) << asked.said;
  EXPECT_EQ(asked.num_calls, eager.num_calls);
  expect_same_fit(asked, eager);
}

void do_beside(CountedNet& net, std::function<at::Tensor(CountedNet&, const Batch&, at::Tensor)> extra) {
  net.extra = std::move(extra);
}

INSTANTIATE_TEST_SUITE_P(
    , RefusedSteps,
    testing::Values(
        Refusal{"ReadsOnTheHost", "whose result the host reads",
                [](CountedNet& net) {
                  do_beside(net, [](CountedNet&, const Batch&, at::Tensor loss) {
                    return loss * (loss.item().toDouble() > 0 ? 1 : 2);
                  });
                }},
        Refusal{"HasAShapeByData", "whose result the host reads",
                [](CountedNet& net) {
                  do_beside(net, [](CountedNet&, const Batch& batch, at::Tensor loss) {
                    return loss + batch[0].masked_select(batch[0] > 0).mean() * 0;
                  });
                }},
        Refusal{"CallsOthersNowAndThen", "its operators differ",
                [](CountedNet& net) {
                  do_beside(net, [](CountedNet& model, const Batch&, at::Tensor loss) {
                    return model.num_calls % 2 == 0 ? loss * 1 : loss;
                  });
                }},
        Refusal{"GivesOtherNumbers", "differ from step to step",
                [](CountedNet& net) {
                  do_beside(net, [](CountedNet& model, const Batch&, at::Tensor loss) {
                    return loss * (1 + 1e-3 * static_cast<double>(model.num_calls));
                  });
                }},
        Refusal{"MakesOtherTensors", "a different tensor in each step",
                [](CountedNet& net) {
                  do_beside(net, [](CountedNet& model, const Batch&, at::Tensor loss) {
                    std::vector<float> number{1.F + 1e-3F * static_cast<float>(model.num_calls)};
                    return loss * torch::from_blob(number.data(), {}).clone();
                  });
                }},
        Refusal{"WritesOnTheHost", "a different tensor in each step",
                [](CountedNet& net) {
                  do_beside(net, [](CountedNet& model, const Batch&, at::Tensor loss) {
                    at::Tensor number = at::empty({});
                    *number.mutable_data_ptr<float>() = 1.F + 1e-3F * static_cast<float>(model.num_calls);
                    return loss * number;
                  });
                }},
        Refusal{"ChangesAConstant", "changes memory that the host has written",
                [](CountedNet& net) {
                  do_beside(net, [](CountedNet&, const Batch&, at::Tensor loss) {
                    std::vector<float> number{1.25F};
                    at::Tensor factor = torch::from_blob(number.data(), {});
                    return loss * factor.mul_(1.5).clone();
                  });
                }},
        Refusal{"ChangesWhatTheHostHasWritten", "changes memory that the host has written",
                [](CountedNet& net) {
                  do_beside(net, [](CountedNet&, const Batch&, at::Tensor loss) {
                    at::Tensor number = at::empty({});
                    *number.mutable_data_ptr<float>() = 1.25F;
                    return loss * number.mul_(1.5);
                  });
                }},
        Refusal{"ChangesItsBatch", "it changes its batch",
                [](CountedNet& net) {
                  do_beside(net, [](CountedNet& model, const Batch& batch, const at::Tensor&) {
                    batch[0].mul_(0.5);
                    return model.loss(model.forward(batch[0]), batch.labels());
                  });
                }},
        Refusal{"LogsOtherNumbers", "what it logs varies",
                [](CountedNet& net) {
                  do_beside(net, [](CountedNet& model, const Batch&, at::Tensor loss) {
                    model.log("calls", static_cast<double>(model.num_calls));
                    return loss;
                  });
                }},
        Refusal{"KeepsATensor", "it keeps tensors",
                [](CountedNet& net) {
                  do_beside(net, [kept = at::Tensor()](CountedNet&, const Batch&, at::Tensor loss) mutable {
                    if (kept.defined()) loss = loss + 0.01 * (loss - kept);
                    kept = loss.detach() * 1;
                    return loss;
                  });
                }},
        Refusal{"CarriesAState", "keeps a hidden state",
                [](CountedNet& net) {
                  do_beside(net, [state = CarriedState(CarriedStateOptions{.batch_dim = 0})](
                                     CountedNet&, const Batch&, at::Tensor loss) mutable {
                    state->reset_state();
                    state->carry(loss.detach().expand({1, 1}));
                    return loss;
                  });
                }},
        Refusal{"HasAnActivationCheckpoint", "activation checkpoint",
                [](CountedNet& net) {
                  do_beside(net, [](CountedNet& model, const Batch& batch, const at::Tensor&) {
                    const at::Tensor hidden = activation_checkpoint(
                        *model.hidden, [&](const at::Tensor& x) { return model.hidden->forward(x); },
                        torch::max_pool2d(model.conv->forward(batch[0]), 2).flatten(1));
                    return model.loss(model.out->forward(hidden), batch.labels());
                  });
                }},
        Refusal{"HasAHook", "a parameter has a hook",
                [](CountedNet& net) {
                  net.out->bias.register_hook([](const at::Tensor& gradient) { return gradient * 0.5; });
                }},
        Refusal{"HasAClosure",
                "evaluates the loss several times",
                [](CountedNet&) {},
                {.max_epochs = 1,
                 .optimizer =
                     [](ParameterGroups p) {
                       return std::make_unique<Lbfgs>(std::move(p), LbfgsOptions{.lr = 1e-3, .max_iter = 2});
                     }}},
        Refusal{"LooksForAnomalies",
                "detect_anomaly",
                [](CountedNet&) {},
                {.max_epochs = 1, .detect_anomaly = true}}),
    [](const auto& refusal) { return refusal.param.name; });

TEST(StepGraph, DetectsAStepThatChanges) {
  const auto prepare = [](CountedNet& net) {
    do_beside(net, [](CountedNet& model, const Batch&, at::Tensor loss) {
      return loss * (model.trainer().epoch() < 4 ? 1. : 0.5);
    });
  };
  const GraphFit eager = graph_fit("off", {}, prepare), recorded = graph_fit("on", {}, prepare);
  EXPECT_LT(recorded.num_calls, kAllBatches - 5);
  EXPECT_NE(recorded.said.find("computes something different"), std::string::npos);
  expect_same_fit(recorded, eager);
}

TEST(StepGraph, FollowsAModelThatChanges) {
  const std::vector<std::pair<std::string, std::function<void(CountedNet&, std::int64_t)>>> cases{
      {"freezing",
       [](CountedNet& net, std::int64_t batch) {
         if (batch == 15) net.freeze(*net.norm);
         if (batch == 22) net.unfreeze(*net.norm);
       }},
      {"a parameter that stops to learn",
       [](CountedNet& net, std::int64_t batch) {
         if (batch == 15) net.hidden->weight.requires_grad_(false);
       }},
      {"weights in other memory",
       [](CountedNet& net, std::int64_t batch) {
         if (batch == 15) net.hidden->weight.set_data(net.hidden->weight.detach() * 0.9);
       }},
      {"weights that are written",
       [](CountedNet& net, std::int64_t batch) {
         const torch::NoGradGuard no_grad;
         if (batch == 15) net.hidden->weight.mul_(0.9);
       }},
      {"a layer in evaluation mode",
       [](CountedNet& net, std::int64_t batch) {
         if (batch == 14) net.drop->eval();
       }},
      {"a mask that is exchanged",
       [](CountedNet& net, std::int64_t batch) {
         if (batch == 1)
           do_beside(net,
                     [mask = &net.mask](CountedNet&, const Batch&, at::Tensor loss) { return loss * *mask; });
         if (batch == 26) net.mask = at::full({}, 0.75);
       }},
      {"statistics in other memory",
       [](CountedNet& net, std::int64_t batch) {
         if (batch == 15) net.norm->running_mean.set_data(at::ones({4}));
       }},
      {"a layer that is replaced",
       [](CountedNet& net, std::int64_t batch) {
         if (batch == 15) net.out = net.replace_module("out", torch::nn::Linear(16, 5));
       }},
      {"a weight that is assigned to its member",
       [](CountedNet& net, std::int64_t batch) {
         if (batch == 15) net.hidden->weight = (net.hidden->weight.detach() * 0.9).requires_grad_();
       }},
      {"statistics that are assigned to their member",
       [](CountedNet& net, std::int64_t batch) {
         if (batch == 15) net.norm->running_mean = at::ones({4});
       }},
      {"autocast that the program switches", [](CountedNet&, std::int64_t batch) {
         if (batch == 15) at::autocast::set_autocast_enabled(at::kCPU, true);
         if (batch == 22) at::autocast::set_autocast_enabled(at::kCPU, false);
       }}};
  for (const auto& [name, meddle] : cases) {
    SCOPED_TRACE(name);
    const auto with = [&, &meddle = meddle] {
      return TrainerOptions{.callbacks = {std::make_shared<ModelMeddler>(meddle)}};
    };
    const GraphFit eager = graph_fit("off", with()), recorded = graph_fit("on", with());
    EXPECT_LT(recorded.num_calls, kAllBatches - 5);
    // The optimizer has the former parameters.
    const bool is_untrained =
        name == "a layer that is replaced" || name == "a weight that is assigned to its member";
    if (is_untrained)
      EXPECT_NE(recorded.said.find("gradients that no optimizer uses"), std::string::npos) << recorded.said;
    else
      EXPECT_EQ(recorded.said, "");
    expect_same_fit(recorded, eager);
  }
}

TEST(StepGraph, EndsWithTheFirstHook) {
  const auto with_hook = [] {
    return TrainerOptions{
        .callbacks = {std::make_shared<ModelMeddler>([](CountedNet& net, std::int64_t batch) {
          if (batch == 27)
            net.out->bias.register_hook([](const at::Tensor& gradient) { return gradient * 0.5; });
        })}};
  };
  const GraphFit eager = graph_fit("off", with_hook()), recorded = graph_fit("on", with_hook());
  EXPECT_LT(recorded.num_calls, kAllBatches - 5);
  EXPECT_NE(recorded.said.find("a parameter has a hook"), std::string::npos);
  expect_same_fit(recorded, eager);
}

// Gradients that other code keeps are not overwritten.
TEST(StepGraph, DoesNotOverwriteGradientsThatOthersKeep) {
  class Keeper : public Callback {
   public:
    void on_before_optimizer_step(Trainer&, Module& model, Optimizer&) override {
      kept.push_back(model.parameters().back().grad());
      copies.push_back(kept.back().clone());
    }
    std::vector<at::Tensor> kept, copies;
  };
  const auto keeper = std::make_shared<Keeper>();
  const GraphFit recorded = graph_fit("on", {.callbacks = {keeper}});
  EXPECT_LT(recorded.num_calls, kAllBatches);
  for (std::size_t i = 0; i < keeper->kept.size(); ++i)
    EXPECT_TRUE(same(keeper->kept[i], keeper->copies[i])) << i;
  expect_same_fit(recorded, graph_fit("off"));
}

// Parameters that the optimizer does not have accumulate their gradients from step to step.
TEST(StepGraph, AccumulatesGradientsThatAreNotCleared) {
  std::vector<at::Tensor> gathered;
  for (const char* step_graph : {"off", "on"}) {
    std::shared_ptr<CountedNet> model;
    graph_fit(step_graph,
              {.optimizer =
                   [](ParameterGroups p) {
                     std::vector<at::Tensor> head(p.groups()[0].parameters.end() - 2,
                                                  p.groups()[0].parameters.end());
                     return std::make_unique<Sgd>(ParameterGroups(head), SgdOptions{.lr = 0.05});
                   },
               .callbacks = {std::make_shared<ModelMeddler>([&](CountedNet& net, std::int64_t batch) {
                 if (batch == kAllBatches) gathered.push_back(net.hidden->weight.grad().clone());
               })}});
  }
  ASSERT_EQ(gathered.size(), 2U);
  EXPECT_TRUE(same(gathered[1], gathered[0]));
}

TEST(StepGraph, SkipsNonfiniteSteps) {
  const auto data_with_nan = [](const char* step_graph, const char* on_nonfinite) {
    torch::manual_seed(1);
    const auto model = std::make_shared<CountedNet>();
    at::Tensor images = at::randn({96, 1, 8, 8});
    images[70].fill_(std::numeric_limits<float>::quiet_NaN());
    TensorData data({images, at::randint(5, {96})}, {}, {.batch_size = 16, .shuffle = false});
    Trainer({.max_epochs = 5, .step_graph = step_graph, .on_nonfinite = on_nonfinite}).fit(model, data);
    return model->hidden->weight.detach().clone();
  };
  for (const char* on_nonfinite : {"skip", "stop"})
    EXPECT_TRUE(same(data_with_nan("on", on_nonfinite), data_with_nan("off", on_nonfinite))) << on_nonfinite;
}

// A host tensor is a constant as long as it stays the same.
TEST(StepGraph, ReplaysConstants) {
  const auto prepare = [](CountedNet& net) {
    do_beside(net, [](CountedNet&, const Batch&, at::Tensor loss) {
      std::vector<float> number{1.25F};
      return loss * torch::from_blob(number.data(), {}).clone() + torch::tensor({0.5F, 0.25F}).sum();
    });
  };
  const GraphFit recorded = graph_fit("on", {}, prepare);
  EXPECT_LT(recorded.num_calls, kAllBatches - 15) << recorded.said;
  expect_same_fit(recorded, graph_fit("off", {}, prepare));
}

// More shapes than are worth a recording each.
TEST(StepGraph, GivesUpOnTooManyShapes) {
  const auto weight = [](const char* step_graph, std::string& text) {
    const SaidBySteps said;
    const auto model = std::make_shared<Slope>();
    Trainer trainer({.max_epochs = 1, .step_graph = step_graph});
    trainer.prepare_model(model);
    for (std::int64_t step = 0; step < 60; ++step) {
      const at::Tensor x = at::arange(1 + step % 12, at::kFloat).unsqueeze(1);
      trainer.train_step(Batch{x, 2 * x});
    }
    text = said.text();
    return model->weight.detach().clone();
  };
  std::string of_eager, of_recorded;
  const at::Tensor eager = weight("off", of_eager), recorded = weight("on", of_recorded);
  EXPECT_NE(of_recorded.find("more than 8 different layouts"), std::string::npos) << of_recorded;
  EXPECT_TRUE(same(recorded, eager));
}

// The captured step is not part of a checkpoint: a run resumes with or without capture.
TEST(StepGraph, MayBeSwitchedOnResume) {
  const Scratch folder;
  const auto trained = [&](const char* step_graph, std::int64_t epochs, const std::filesystem::path& from) {
    torch::manual_seed(1);
    const auto model = std::make_shared<CountedNet>();
    TensorData data({at::randn({86, 1, 8, 8}), at::randint(5, {86})}, {}, {.batch_size = 16});
    Trainer trainer({.max_epochs = epochs, .step_graph = step_graph});
    trainer.fit(model, data, {.resume = from});
    save_checkpoint(trainer.state_dict(), folder / "last.ckpt");
    return model->hidden->weight.detach().clone();
  };
  const at::Tensor whole = trained("off", 6, {});
  for (const auto& [first, second] : {std::pair("on", "off"), std::pair("off", "on")}) {
    trained(first, 3, {});
    EXPECT_TRUE(same(trained(second, 6, folder / "last.ckpt"), whole)) << first << ", then " << second;
  }
}

// A custom training loop need not end its epochs.
TEST(StepGraph, ChecksAgainInEpochsThatNeverEnd) {
  const SaidBySteps said;
  class Sloping : public Slope {
   public:
    at::Tensor training_step(const Batch& batch) override {
      ++num_calls;
      return Module::training_step(batch) * factor;
    }
    std::int64_t num_calls = 0;
    double factor = 1;
  };
  const auto sloping = std::make_shared<Sloping>();
  Trainer trainer({.max_epochs = 1, .step_graph = "on"});
  trainer.prepare_model(sloping);
  const at::Tensor x = at::ones({2, 1});
  for (int step = 0; step < 1500; ++step) {
    if (step == 500) sloping->factor = 0.5;
    trainer.train_step(Batch{x, 2 * x});
  }
  EXPECT_NE(said.text().find("computes something different"), std::string::npos);
  EXPECT_GT(sloping->num_calls, 490);
  EXPECT_LT(sloping->num_calls, 510);
}

TEST(StepGraph, WorksInCustomLoops) {
  const auto trained = [](const char* step_graph) {
    torch::manual_seed(1);
    const auto model = std::make_shared<CountedNet>();
    TensorData data({at::randn({80, 1, 8, 8}), at::randint(5, {80})}, {}, {.batch_size = 16});
    Trainer trainer({.max_epochs = 4, .step_graph = step_graph});
    trainer.prepare_data(data);
    trainer.prepare_model(model);
    for (int epoch = 0; epoch < 4; ++epoch) {
      for (const Batch& batch : trainer.train_batches()) trainer.train_step(batch);
      trainer.finish_epoch();
    }
    return std::pair(model->out->weight.detach().clone(), model->num_calls);
  };
  const auto [eager, all] = trained("off");
  const auto [recorded, some] = trained("on");
  EXPECT_LT(some, all - 8);
  EXPECT_TRUE(same(recorded, eager));
}

}  // namespace
}  // namespace kindling
