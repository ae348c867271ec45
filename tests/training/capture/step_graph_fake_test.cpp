// Device graphs compared with eager steps: bit-identical results, and the work of the host.
#include <ATen/DeviceAccelerator.h>
#include <ATen/ops/scalar_tensor.h>
#include <gtest/gtest.h>

#include <stdexcept>

#include "fake_accelerator.h"
#include "graph/device/device_graph.h"
#include "kindling/metrics/class_score.h"
#include "kindling/metrics/confusion_matrix.h"
#include "kindling/models/lenet.h"
#include "kindling/models/mlp.h"
#include "kindling/models/small_cnn.h"
#include "kindling/optim/sgd.h"
#include "kindling/tensors/checkpoint_file.h"
#include "support/scratch.h"
#include "training/capture/step_graph.h"

namespace kindling {
namespace {

// Of 36 batches, one layout with 5 and one with 1 per epoch: each warms up once and is recorded twice; the
// step that becomes a graph is called for that and for itself, an epoch's first batch is made by the step as
// well.
constexpr std::int64_t kBatchesOfFake = 36;

class FakeStepGraph : public testing::Test {
 protected:
  void SetUp() override {
    if (!why_no_graph(fake::device()).empty()) GTEST_SKIP() << "LibTorch has no graphs of devices";
  }
};

using FakePrepare = std::function<void(CountedNet&)>;

GraphFit fake_fit(const std::string& step_graph, TrainerOptions options = {},
                  const FakePrepare& prepare = {}) {
  options.num_gpus = 1;
  return graph_fit(step_graph, std::move(options), prepare);
}

FakePrepare beside(std::function<at::Tensor(CountedNet&, const Batch&, at::Tensor)> extra) {
  return [extra = std::move(extra)](CountedNet& net) { net.extra = extra; };
}

// LibTorch warns of a graph of autograd's that lives on from another stream, which breaks a recording by
// CUDA.
class NoWarnings : public c10::WarningHandler {
 public:
  void process(const c10::Warning& warning) override { ADD_FAILURE() << warning.msg(); }
};

void expect_replayed(const TrainerOptions& options, const FakePrepare& prepare = {}) {
  const GraphFit eager = fake_fit("off", options, prepare);
  fake::reset_counts();
  NoWarnings none;
  const c10::WarningUtils::WarningHandlerGuard guard(&none);
  const GraphFit recorded = fake_fit("on", options, prepare);
  EXPECT_EQ(eager.num_calls, kBatchesOfFake);
  EXPECT_LT(recorded.num_calls, kBatchesOfFake - 15);
  EXPECT_GT(fake::counts().graph_replays, 15);
  EXPECT_EQ(recorded.said, eager.said);
  expect_same_fit(recorded, eager);
}

// Batch norm and dropout are part of the model, clipping and a short last batch of the training.
TEST_F(FakeStepGraph, IsBitIdenticalToEagerSteps) { expect_replayed({.gradient_clip_val = 0.5}); }

TEST_F(FakeStepGraph, WorksWithEveryOptionThatAffectsAStep) {
  for (const auto& [name, options] : step_option_cases()) {
    SCOPED_TRACE(name);
    expect_replayed(options);
  }
}

TEST_F(FakeStepGraph, LogsWhatTheModelLogs) {
  expect_replayed({.log_every_n_steps = 1}, [](CountedNet& net) {
    net.add_metric("confusion", std::make_shared<ConfusionMatrix>());
    net.add_metric("f1", std::make_shared<ClassScore>());
    log_beside(net);
  });
}

// Nothing reads what is still on its way.
TEST_F(FakeStepGraph, WorksWithLateCopies) {
  const GraphFit eager = fake_fit("off");
  const fake::LateCopies late;
  const GraphFit recorded = fake_fit("on");
  EXPECT_EQ(recorded.said, "");
  EXPECT_LT(recorded.num_calls, kBatchesOfFake);
  expect_same_fit(recorded, eager);
}

// Loss, metrics and weights of the shipped models.
TEST_F(FakeStepGraph, TrainsTheShippedModelsLikeEagerSteps) {
  const auto trained = [](const std::shared_ptr<Module>& model, std::int64_t size, const char* step_graph) {
    const SaidBySteps said;
    const auto records = std::make_shared<MemoryLogger>();
    NoiseImages data(44, size, 8);
    torch::manual_seed(2);
    Trainer({.max_epochs = 4, .num_gpus = 1, .step_graph = step_graph, .loggers = {records}})
        .fit(model, data);
    std::vector<at::Tensor> values;
    for (const at::Tensor& tensor : model->parameters()) values.push_back(tensor.detach().cpu());
    for (const at::Tensor& tensor : model->buffers()) values.push_back(tensor.cpu());
    EXPECT_EQ(said.text(), "");
    return std::pair(values, numbers_of(records->records().back()));
  };
  for (const auto& [size, make] : sample_models()) {
    torch::manual_seed(1);
    const auto [eager, eager_numbers] = trained(make(), size, "off");
    torch::manual_seed(1);
    fake::reset_counts();
    trained(make(), size, "auto");
    EXPECT_GT(fake::counts().graph_replays, 10) << "these models say has_static_graph()";
    torch::manual_seed(1);
    const auto [recorded, numbers] = trained(make(), size, "on");
    EXPECT_GT(fake::counts().graph_replays, 10);
    EXPECT_EQ(numbers, eager_numbers);
    for (std::size_t i = 0; i < eager.size(); ++i) EXPECT_TRUE(same(recorded[i], eager[i])) << i;
  }
}

// What the host starts and what it waits for in each batch.
class FakeStepCounter : public Callback {
 public:
  void on_train_epoch_start(Trainer&, Module&) override { fake::reset_counts(); }
  void on_train_batch_end(Trainer&, Module&) override {
    counts.push_back(fake::counts());
    fake::reset_counts();
  }
  std::vector<fake::Counts> counts;
};

TEST_F(FakeStepGraph, LaunchesLessAndNeverWaits) {
  std::vector<std::int64_t> launches;
  for (const char* step_graph : {"off", "on"}) {
    const auto counter = std::make_shared<FakeStepCounter>();
    fake_fit(step_graph, {.callbacks = {counter}});
    std::int64_t copies_to_host = 0;
    for (const fake::Counts& counts : counter->counts) {
      EXPECT_EQ(counts.host_waits(), 0);
      copies_to_host += counts.device_to_host_copies;
    }
    // One answer for each layout's first replay, and one in each epoch after the first.
    EXPECT_LE(copies_to_host, std::string_view(step_graph) == "on" ? 7 : 0);
    launches.push_back(counter->counts.at(33).launches);  // a full batch that is not compared
  }
  EXPECT_EQ(fake::counts().graph_replays, 0);
  EXPECT_LT(launches[1] * 2, launches[0]);
}

struct FakeRefusal {
  std::string name, reason;
  FakePrepare prepare;
};

class FakeRefusedSteps : public testing::TestWithParam<FakeRefusal> {
 protected:
  void SetUp() override {
    if (!why_no_graph(fake::device()).empty()) GTEST_SKIP() << "LibTorch has no graphs of devices";
  }
};

// The reason is logged once, and the run is bit-identical.
TEST_P(FakeRefusedSteps, AreNotReplayed) {
  const GraphFit eager = fake_fit("off", {}, GetParam().prepare),
                 asked = fake_fit("on", {}, GetParam().prepare);
  const std::string start = "step_graph: steps are not captured: ";
  EXPECT_NE(asked.said.find(start), std::string::npos);
  EXPECT_EQ(asked.said.find(start), asked.said.rfind(start)) << asked.said;
  EXPECT_NE(asked.said.find(GetParam().reason), std::string::npos) << asked.said;
  expect_same_fit(asked, eager);
}

INSTANTIATE_TEST_SUITE_P(
    FakeModels, FakeRefusedSteps,
    testing::Values(FakeRefusal{"ReadsOnTheHost", "whose result the host reads",
                                beside([](CountedNet&, const Batch&, at::Tensor loss) {
                                  return loss * (loss.item().toDouble() > 0 ? 1 : 2);
                                })},
                    FakeRefusal{"CopiesToTheHost", "it has a tensor on cpu",
                                beside([](CountedNet& model, const Batch&, at::Tensor loss) {
                                  model.mask = loss.detach().cpu();
                                  return loss;
                                })},
                    FakeRefusal{"CopiesFromTheHost", "it uses a tensor on the host",
                                beside([](CountedNet& model, const Batch& batch, at::Tensor loss) {
                                  return loss * model.mask.to(batch[0].device());
                                })},
                    FakeRefusal{"MakesTensorsOnTheHost", "it has a tensor on cpu",
                                beside([](CountedNet&, const Batch&, at::Tensor loss) {
                                  return loss * at::scalar_tensor(0.5);
                                })},
                    FakeRefusal{"ComputesOnTheHost", "it uses a tensor on the host",
                                beside([](CountedNet& model, const Batch&, at::Tensor loss) {
                                  return loss * (model.mask * 0.5);
                                })},
                    FakeRefusal{"GivesOtherNumbers", "differ from step to step",
                                beside([](CountedNet& model, const Batch&, at::Tensor loss) {
                                  return loss * (1 + 1e-3 * static_cast<double>(model.num_calls));
                                })},
                    FakeRefusal{"MakesOtherTensors", "a different tensor in each step",
                                beside([](CountedNet& model, const Batch&, at::Tensor loss) {
                                  static float number = 0;
                                  number = 1.F + 1e-3F * static_cast<float>(model.num_calls);
                                  return loss * torch::from_blob(&number, {});
                                })},
                    FakeRefusal{"ChangesItsBatch", "it changes its batch",
                                beside([](CountedNet& model, const Batch& batch, const at::Tensor&) {
                                  batch[0].mul_(0.5);
                                  return model.loss(model.forward(batch[0]), batch.labels());
                                })},
                    FakeRefusal{"HasAHook", "a parameter has a hook",
                                [](CountedNet& net) {
                                  net.out->bias.register_hook(
                                      [](const at::Tensor& gradient) { return gradient * 0.5; });
                                }},
                    // No operator shows this: the device refuses to record it.
                    FakeRefusal{"WaitsForTheDevice", "a wait for the device",
                                beside([](CountedNet&, const Batch&, at::Tensor loss) {
                                  at::accelerator::synchronizeDevice(0);
                                  return loss;
                                })},
                    // Some gradients have been made by then.
                    FakeRefusal{"ThrowsInBackwardWhereItIsRecorded", "not now",
                                [](CountedNet& net) {
                                  const at::Tensor factors = net.register_parameter("factors", at::ones({2}));
                                  net.extra = [factors](CountedNet& model, const Batch&, at::Tensor loss) {
                                    const bool is_recorded = at::accelerator::getCurrentStream(0).id() != 0 &&
                                                             model.num_calls == 4;
                                    loss.register_hook([is_recorded](const at::Tensor& gradient) {
                                      if (is_recorded) throw std::runtime_error("not now");
                                      return gradient;
                                    });
                                    return loss + factors.pow(2).sum();
                                  };
                                }},
                    FakeRefusal{"ThrowsWhereItIsRecorded", "not now",
                                beside([](CountedNet& model, const Batch&, at::Tensor loss) {
                                  const bool is_on_side = at::accelerator::getCurrentStream(0).id() != 0;
                                  if (is_on_side && model.num_calls == 4) throw std::runtime_error("not now");
                                  return loss;
                                })}),
    [](const auto& refusal) { return refusal.param.name; });

TEST_F(FakeStepGraph, DetectsAStepThatChanges) {
  const auto prepare = beside([](CountedNet& model, const Batch&, at::Tensor loss) {
    return loss * (model.trainer().epoch() < 4 ? 1. : 0.5);
  });
  const GraphFit eager = fake_fit("off", {}, prepare);
  for (const bool is_late : {false, true}) {
    fake::set_late_copies(is_late);
    const GraphFit recorded = fake_fit("on", {}, prepare);
    fake::set_late_copies(false);
    EXPECT_LT(recorded.num_calls, kBatchesOfFake);
    EXPECT_NE(recorded.said.find("computes something different"), std::string::npos);
    expect_same_fit(recorded, eager);
  }
}

TEST_F(FakeStepGraph, FollowsAModelThatChanges) {
  const auto on_fake = at::device(fake::device());
  const std::vector<std::pair<std::string, std::function<void(CountedNet&, std::int64_t)>>> cases{
      {"freezing",
       [](CountedNet& net, std::int64_t batch) {
         if (batch == 15) net.freeze(*net.norm);
         if (batch == 22) net.unfreeze(*net.norm);
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
       [&](CountedNet& net, std::int64_t batch) {
         if (batch == 1) {
           net.mask = at::full({}, 0.5, on_fake);
           net.extra = [mask = &net.mask](CountedNet&, const Batch&, at::Tensor loss) {
             return loss * *mask;
           };
         }
         if (batch == 26) net.mask = at::full({}, 0.75, on_fake);
       }},
      {"statistics in other memory", [&](CountedNet& net, std::int64_t batch) {
         if (batch == 15) net.norm->running_mean.set_data(at::ones({4}, on_fake));
       }}};
  for (const auto& [name, meddle] : cases) {
    SCOPED_TRACE(name);
    const auto with = [&, &meddle = meddle] {
      return TrainerOptions{.callbacks = {std::make_shared<ModelMeddler>(meddle)}};
    };
    const GraphFit eager = fake_fit("off", with()), recorded = fake_fit("on", with());
    EXPECT_LT(recorded.num_calls, kBatchesOfFake - 5);
    EXPECT_EQ(recorded.said, "");
    expect_same_fit(recorded, eager);
  }
}

// The host does not look into a device's memory: another tensor in each step may hold anything.
TEST_F(FakeStepGraph, RefusesADifferentTensorInEachStep) {
  const auto with = [] {
    return TrainerOptions{
        .callbacks = {std::make_shared<ModelMeddler>([](CountedNet& net, std::int64_t batch) {
          net.mask = at::full({}, batch < 15 ? 0.5 : 0.25, at::device(fake::device()));
        })}};
  };
  const auto prepare = beside([](CountedNet& model, const Batch&, at::Tensor loss) {
    return model.mask.is_cpu() ? loss * 1 : loss * model.mask;
  });
  const GraphFit eager = fake_fit("off", with(), prepare), recorded = fake_fit("on", with(), prepare);
  EXPECT_EQ(recorded.num_calls, kBatchesOfFake);
  EXPECT_NE(recorded.said.find("a different tensor in each step"), std::string::npos) << recorded.said;
  expect_same_fit(recorded, eager);
}

// Gradients that other code keeps are not overwritten.
TEST_F(FakeStepGraph, DoesNotOverwriteGradientsThatOthersKeep) {
  class Keeper : public Callback {
   public:
    void on_before_optimizer_step(Trainer&, Module& model, Optimizer&) override {
      kept.push_back(model.parameters().back().grad());
      copies.push_back(kept.back().clone());
    }
    std::vector<at::Tensor> kept, copies;
  };
  const auto keeper = std::make_shared<Keeper>();
  fake::reset_counts();
  const GraphFit recorded = fake_fit("on", {.callbacks = {keeper}});
  EXPECT_GE(fake::counts().graph_replays, 4);  // two that are compared, and then one of each layout
  for (std::size_t i = 0; i < keeper->kept.size(); ++i)
    EXPECT_TRUE(same(keeper->kept[i].cpu(), keeper->copies[i].cpu())) << i;
  expect_same_fit(recorded, fake_fit("off"));
}

// Parameters that the optimizer does not have accumulate their gradients from step to step.
TEST_F(FakeStepGraph, AccumulatesGradientsThatAreNotCleared) {
  std::vector<at::Tensor> gathered;
  for (const char* step_graph : {"off", "on"})
    fake_fit(step_graph,
             {.optimizer =
                  [](ParameterGroups p) {
                    std::vector<at::Tensor> head(p.groups()[0].parameters.end() - 2,
                                                 p.groups()[0].parameters.end());
                    return std::make_unique<Sgd>(ParameterGroups(head), SgdOptions{.lr = 0.05});
                  },
              .callbacks = {std::make_shared<ModelMeddler>([&](CountedNet& net, std::int64_t batch) {
                if (batch == kBatchesOfFake) gathered.push_back(net.hidden->weight.grad().cpu());
              })}});
  ASSERT_EQ(gathered.size(), 2U);
  EXPECT_TRUE(same(gathered[1], gathered[0]));
}

// The captured step is not part of a checkpoint: a run resumes with or without capture.
TEST_F(FakeStepGraph, MayBeSwitchedOnResume) {
  const Scratch folder;
  const auto trained = [&](const char* step_graph, std::int64_t epochs, const std::filesystem::path& from) {
    torch::manual_seed(1);
    const auto model = std::make_shared<CountedNet>();
    TensorData data({at::randn({86, 1, 8, 8}), at::randint(5, {86})}, {}, {.batch_size = 16});
    Trainer trainer({.max_epochs = epochs, .num_gpus = 1, .step_graph = step_graph});
    trainer.fit(model, data, {.resume = from});
    save_checkpoint(trainer.state_dict(), folder / "last.ckpt");
    return model->hidden->weight.detach().cpu();
  };
  const at::Tensor whole = trained("off", 6, {});
  for (const auto& [first, second] : {std::pair("on", "off"), std::pair("off", "on")}) {
    trained(first, 3, {});
    EXPECT_TRUE(same(trained(second, 6, folder / "last.ckpt"), whole)) << first << ", then " << second;
  }
}

// A custom training loop with batches of other shapes, more than are worth a graph each.
TEST_F(FakeStepGraph, FollowsShapesUpToALimit) {
  for (const std::int64_t num_shapes : {3, 12}) {
    std::vector<at::Tensor> weights;
    std::string text;
    for (const char* step_graph : {"off", "on"}) {
      const SaidBySteps said;
      const auto model = std::make_shared<Slope>();
      Trainer trainer({.max_epochs = 1, .num_gpus = 1, .step_graph = step_graph});
      trainer.prepare_model(model);
      fake::reset_counts();
      for (std::int64_t step = 0; step < 60; ++step) {
        const at::Tensor x = at::arange(1 + step % num_shapes, at::kFloat).unsqueeze(1);
        trainer.train_step(trainer.prepare_batch(Batch{x, 2 * x}));
      }
      weights.push_back(model->weight.detach().cpu());
      text = said.text();
    }
    EXPECT_TRUE(same(weights[1], weights[0]));
    EXPECT_EQ(text.find("more than 8 different layouts") != std::string::npos, num_shapes > 8) << text;
    EXPECT_EQ(fake::counts().graph_replays > 30, num_shapes <= 8);
  }
}

}  // namespace
}  // namespace kindling
