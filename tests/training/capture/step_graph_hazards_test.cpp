// Models, batches and callbacks that interfere with a captured step: the numbers stay those of eager steps.
#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/library.h>

#include <thread>

#include "kindling/optim/sgd.h"
#include "training/capture/step_graph.h"

namespace kindling {
namespace {

using Extra = std::function<at::Tensor(CountedNet&, const Batch&, at::Tensor)>;

void let(CountedNet& net, Extra extra) { net.extra = std::move(extra); }

// Calls what a test wants between two batches.
class BetweenBatches : public Callback {
 public:
  explicit BetweenBatches(std::function<void(Trainer&, CountedNet&, std::int64_t)> act)
      : act_(std::move(act)) {}
  void on_train_batch_end(Trainer& trainer, Module& model) override {
    act_(trainer, dynamic_cast<CountedNet&>(model), ++num_);
  }

 private:
  std::function<void(Trainer&, CountedNet&, std::int64_t)> act_;
  std::int64_t num_ = 0;
};

// The log gives the reason if the step is not captured; without a reason it is replayed.
struct Hazard {
  std::string name, reason;
  std::function<void(CountedNet&)> prepare = [](CountedNet&) {};
  std::function<void(Trainer&, CountedNet&, std::int64_t)> between = {};
  std::int64_t window = 1;
};

class Hazards : public testing::TestWithParam<Hazard> {};

TEST_P(Hazards, AreBitIdenticalToEagerSteps) {
  const auto options = [&] {
    TrainerOptions options{.accumulate_grad_batches = GetParam().window};
    if (GetParam().between) options.callbacks = {std::make_shared<BetweenBatches>(GetParam().between)};
    return options;
  };
  const GraphFit eager = graph_fit("off", options(), GetParam().prepare),
                 recorded = graph_fit("on", options(), GetParam().prepare);
  EXPECT_EQ(recorded.num_calls < 20, GetParam().reason.empty());
  EXPECT_EQ(recorded.said.empty(), GetParam().reason.empty()) << recorded.said;
  EXPECT_NE(recorded.said.find(GetParam().reason), std::string::npos) << recorded.said;
  expect_same_fit(recorded, eager);
}

INSTANTIATE_TEST_SUITE_P(
    , Hazards,
    testing::Values(
        Hazard{"WeightsThatAreRegisteredTwice", "",
               [](CountedNet& net) { net.register_module("again", net.hidden.ptr()); }},
        Hazard{"WeightsThatAreRegisteredTwiceInWindows",
               "",
               [](CountedNet& net) { net.register_module("again", net.hidden.ptr()); },
               {},
               2},
        Hazard{"ListsThatAreWritten", "",
               [](CountedNet& net) {
                 const auto mean = std::make_shared<at::Tensor>(at::zeros_like(net.out->weight));
                 let(net, [mean](CountedNet& model, const Batch&, at::Tensor loss) {
                   const torch::NoGradGuard no_grad;
                   const std::vector<at::Tensor> to{*mean}, from{model.out->weight.detach()};
                   at::_foreach_mul_(to, 0.5);
                   at::_foreach_add_(to, from);
                   const torch::AutoGradMode grad(true);
                   return loss + (model.out->weight - *mean).pow(2).sum();
                 });
               }},
        Hazard{"BatchesThatAreWritten", "it changes its batch",
               [](CountedNet& net) {
                 let(net, [](CountedNet& model, const Batch& batch, at::Tensor) {
                   at::Tensor x = batch[0];
                   x.mul_(0.5).add_(0.1);
                   return model.loss(model.forward(x), batch.labels());
                 });
               }},
        Hazard{"TensorsThatAreNotRegistered", "a tensor that is not registered in the model",
               [](CountedNet& net) {
                 const at::Tensor factor = at::ones({}).requires_grad_();
                 let(net, [factor](CountedNet&, const Batch&, at::Tensor loss) { return loss * factor; });
               }},
        Hazard{"GeneratorsOfTheirOwn", "a custom generator",
               [](CountedNet& net) {
                 let(net, [g = std::make_shared<at::Generator>()](CountedNet& model, const Batch&,
                                                                  at::Tensor loss) {
                   if (model.num_calls == 1) *g = at::detail::createCPUGenerator(3);
                   return loss * at::rand({}, *g, at::kFloat);
                 });
               }},
        Hazard{"NumbersLoggedByEpoch", "computes something different",
               [](CountedNet& net) {
                 let(net, [](CountedNet& model, const Batch&, at::Tensor loss) {
                   model.log("epoch_here", static_cast<double>(model.trainer().epoch()));
                   return loss;
                 });
               }},
        Hazard{"NumbersLoggedByCallbacks", "", [](CountedNet&) {},
               [](Trainer& trainer, CountedNet&, std::int64_t batch) {
                 trainer.log("mine", batch < 20 ? 1. : 2.);
               }},
        Hazard{"TensorsLoggedByCallbacks", "", [](CountedNet&) {},
               [](Trainer& trainer, CountedNet& net, std::int64_t) {
                 trainer.log("mine", net.out->bias.detach().mean());
               }},
        Hazard{"HooksThatComeLater", "a parameter has a hook", [](CountedNet&) {},
               [](Trainer&, CountedNet& net, std::int64_t batch) {
                 if (batch == 15) net.out->bias.register_hook([](const at::Tensor& g) { return g * 0.5; });
               }},
        Hazard{"TensorsOfCallbacksThatAreTheSameAtFirst", "a different tensor in each step",
               [](CountedNet& net) {
                 let(net, [](CountedNet& model, const Batch&, at::Tensor loss) { return loss * model.mask; });
               },
               [](Trainer&, CountedNet& net, std::int64_t batch) {
                 net.mask = at::full({}, batch < 15 ? 0.5 : 0.25);
               }},
        Hazard{"BuffersThatAreExpanded", "",
               [](CountedNet& net) { net.register_buffer("wide", at::ones({1}).expand({4})); }},
        Hazard{"LossesOfOtherShapes", "its operators differ",
               [](CountedNet& net) {
                 let(net, [](CountedNet& model, const Batch&, at::Tensor loss) {
                   return model.num_calls < 3 ? loss.view({1}) : loss;
                 });
               }},
        Hazard{"BackwardWithinTheStep", "computes gradients itself",
               [](CountedNet& net) {
                 let(net, [](CountedNet& model, const Batch& batch, at::Tensor loss) {
                   (model.loss(model.forward(batch[0]), batch.labels()) * 0.1).backward();
                   return loss;
                 });
               }},
        Hazard{"BackwardWithinTheStepInWindows",
               "computes gradients itself",
               [](CountedNet& net) {
                 let(net, [](CountedNet& model, const Batch& batch, at::Tensor loss) {
                   (model.loss(model.forward(batch[0]), batch.labels()) * 0.1).backward();
                   return loss;
                 });
               },
               {},
               2},
        Hazard{"SecondGradients", "",
               [](CountedNet& net) {
                 let(net, [](CountedNet& model, const Batch& batch, at::Tensor loss) {
                   at::Tensor x = batch[0].clone().requires_grad_();
                   const auto g = torch::autograd::grad({model.forward(x).sum()}, {x}, {}, true, true);
                   return loss + g[0].pow(2).mean();
                 });
               }},
        Hazard{"ViewsAsLoss", "",
               [](CountedNet& net) {
                 let(net, [](CountedNet&, const Batch&, at::Tensor loss) {
                   return at::stack({loss, loss * 2}).select(0, 1);
                 });
               }},
        Hazard{"HostLoopsOverResults", "computes something different",
               [](CountedNet& net) {
                 let(net, [](CountedNet&, const Batch& batch, at::Tensor loss) {
                   at::Tensor w = at::zeros({4});
                   for (int i = 0; i < 4; ++i)
                     w.mutable_data_ptr<float>()[i] = batch[0].const_data_ptr<float>()[i];
                   return loss * w.sum();
                 });
               }},
        Hazard{"OperatorsThatWriteWithoutSayingSo", "does not return a tensor",
               [](CountedNet& net) {
                 static torch::Library library(torch::Library::DEF, "hazards", std::nullopt, __FILE__,
                                               __LINE__);
                 static const bool is_known = [] {
                   library.def("count(Tensor x) -> ()",
                               torch::dispatch(c10::DispatchKey::CPU,
                                               [](at::Tensor x) { *x.mutable_data_ptr<float>() += 1; }));
                   library.def("twice(Tensor x) -> float",
                               torch::dispatch(c10::DispatchKey::CPU, [](at::Tensor x) {
                                 return 2. * static_cast<double>(*x.const_data_ptr<float>());
                               }));
                   return true;
                 }();
                 (void)is_known;
                 let(net, [n = at::zeros({})](CountedNet&, const Batch&, at::Tensor loss) {
                   static const auto count = c10::Dispatcher::singleton()
                                                 .findSchemaOrThrow("hazards::count", "")
                                                 .typed<void(at::Tensor)>();
                   count.call(n);
                   return loss * n.cos();
                 });
               }},
        Hazard{"WritesToOutputsGivenByOut", "a replay failed",
               [](CountedNet& net) {
                 let(net, [](CountedNet& model, const Batch&, at::Tensor loss) {
                   const torch::NoGradGuard no_grad;
                   at::Tensor out = at::empty({0});
                   at::add_out(out, model.out->bias.detach(), model.out->bias.detach());
                   const torch::AutoGradMode grad(true);
                   return loss * out.sum();
                 });
               }}),
    [](const auto& hazard) { return hazard.param.name; });

// Weights and the next random numbers after ten epochs of the batches, each in its turn.
struct FreeTraining {
  std::vector<at::Tensor> values;
  std::string said;
  int num_calls = 0;
};

// Takes what a test gives for its step.
class FreeNet : public Module {
 public:
  FreeNet() { register_module("linear", linear); }
  at::Tensor forward(const at::Tensor& x) override { return linear->forward(x); }
  at::Tensor training_step(const Batch& batch) override {
    ++num_calls;
    return step(*this, batch);
  }
  int num_calls = 0;
  std::function<at::Tensor(FreeNet&, const Batch&)> step = [](FreeNet& net, const Batch& batch) {
    return net.forward(batch[0]).pow(2).mean();
  };
  torch::nn::Linear linear{4, 3};
};

FreeTraining free_training(const char* step_graph, const std::vector<Batch>& batches,
                           std::shared_ptr<FreeNet> net) {
  const SaidBySteps said;
  const torch::NoGradGuard no_grad;
  net->linear->weight.copy_(at::arange(12).view({3, 4}) * 0.1 - 0.4);
  net->linear->bias.zero_();
  torch::manual_seed(5);
  Trainer trainer({.step_graph = step_graph, .optimizer = sgd(0.05)});
  trainer.prepare_model(net);
  for (int epoch = 0; epoch < 10; ++epoch) {
    for (const Batch& batch : batches) trainer.train_step(batch);
    trainer.finish_epoch();
  }
  return {.values = {net->linear->weight.detach(), net->linear->bias.detach(), at::rand({3})},
          .said = said.text(),
          .num_calls = net->num_calls};
}

void expect_same_training(const std::vector<Batch>& batches, const std::string& reason,
                          const std::function<void(FreeNet&)>& prepare) {
  const auto net = [&] {
    auto made = std::make_shared<FreeNet>();
    prepare(*made);
    return made;
  };
  const FreeTraining eager = free_training("off", batches, net()),
                     recorded = free_training("on", batches, net());
  EXPECT_EQ(recorded.num_calls < eager.num_calls, reason.empty());
  EXPECT_NE(recorded.said.find(reason), std::string::npos) << recorded.said;
  for (std::size_t i = 0; i < eager.values.size(); ++i)
    EXPECT_TRUE(same(recorded.values[i], eager.values[i])) << i;
}

TEST(StepGraphHazards, SparseTensors) {
  const at::Tensor dense = at::randn({6, 4});
  const auto step = [](FreeNet& net, const Batch& batch) {
    return (at::matmul(batch[0], net.linear->weight.t())).pow(2).mean();
  };
  expect_same_training({Batch{dense.to_sparse(), dense}}, "a tensor that is not dense",
                       [&](FreeNet& net) { net.step = step; });
  expect_same_training({Batch{dense, dense.clone()}}, "a tensor that is not dense",
                       [&](FreeNet& net) { net.register_buffer("sparse", at::eye(6).to_sparse()); });
}

TEST(StepGraphHazards, PackedSequences) {
  torch::manual_seed(3);
  std::vector<Batch> batches;
  for (const std::vector<std::int64_t>& lengths :
       {std::vector<std::int64_t>{5, 4, 1}, {5, 4, 1}, {5, 4, 1}, {5, 3, 2}, {5, 2, 1}})
    batches.push_back(Batch{at::randn({3, 5, 4}), at::tensor(lengths)});
  const auto prepare = [](FreeNet& net) {
    auto lstm = torch::nn::LSTM(torch::nn::LSTMOptions(3, 3).batch_first(true));
    torch::NoGradGuard no_grad;
    for (auto& p : lstm->parameters()) p.fill_(0.1);
    net.register_module("lstm", lstm);
    net.step = [lstm](FreeNet& model, const Batch& batch) mutable {
      const auto packed =
          torch::nn::utils::rnn::pack_padded_sequence(model.forward(batch[0]), batch[1], true);
      const auto out = std::get<0>(lstm->forward_with_packed_input(packed));
      return std::get<0>(torch::nn::utils::rnn::pad_packed_sequence(out, true)).pow(2).mean();
    };
  };
  expect_same_training(batches, "whose result the host reads", prepare);
}

TEST(StepGraphHazards, LengthsOnTheHost) {
  torch::manual_seed(3);
  std::vector<Batch> batches;
  for (const std::int64_t length : {2, 2, 2, 3, 4})
    batches.push_back(
        Batch::list({Batch::leaf(at::randn({3, 4})), Batch::host_leaf(at::full({1}, length, at::kLong))}));
  expect_same_training(batches, "the host reads a tensor of its batch", [](FreeNet& net) {
    net.step = [](FreeNet& model, const Batch& batch) {
      return model.forward(batch[0].narrow(1, 0, 4)).narrow(0, 0, 1).pow(2).mean() *
             static_cast<double>(*batch[1].const_data_ptr<std::int64_t>());
    };
  });
}

// Memory of all kinds in a batch.
TEST(StepGraphHazards, OddBatches) {
  torch::manual_seed(3);
  const at::Tensor all = at::randn({40, 8});
  std::vector<Batch> batches;
  for (int i = 0; i < 4; ++i) {
    batches.push_back(Batch{all.narrow(0, 4 * i, 6).narrow(1, i, 4), at::zeros({6})});
    batches.push_back(Batch{all.t().narrow(0, i, 4).t(), at::zeros({0, 3})});
    batches.push_back(Batch{all.narrow(0, i, 1).narrow(1, 0, 4).expand({5, 4}), at::zeros({5})});
    batches.push_back(
        Batch{all.narrow(0, i, 5).narrow(1, 0, 4), all.narrow(0, i, 5).narrow(1, 4, 4).clone()});
  }
  expect_same_training(batches, "", [](FreeNet& net) {
    net.step = [](FreeNet& model, const Batch& batch) {
      return model.forward(batch[0]).pow(2).mean() + batch[1].sum() * 0.5;
    };
  });
}

// The step that was to be the first replay throws, and then comes a batch of another shape, or the end.
TEST(StepGraphHazards, ErrorsBeforeTheFirstReplay) {
  const auto run = [](const char* step_graph) {
    torch::manual_seed(1);
    const auto model = std::make_shared<CountedNet>();
    TensorData data({at::randn({16, 1, 8, 8}), at::randint(5, {16})}, {}, {.batch_size = 16});
    Trainer trainer({.max_epochs = 1, .step_graph = step_graph});
    trainer.prepare_data(data);
    trainer.prepare_model(model);
    int num_errors = 0;
    for (int i = 0; i < 20; ++i) {
      const std::int64_t rows = i == 5 || i == 12 ? 7 : 16;
      at::Tensor labels = at::randint(5, {rows});
      if (i == 4) labels[3] = 9;
      try {
        trainer.train_step(Batch{at::randn({rows, 1, 8, 8}), labels});
      } catch (const std::exception&) {
        ++num_errors;
      }
    }
    EXPECT_EQ(num_errors, 1);
    return std::pair(model->out->weight.detach().clone(), model->num_calls);
  };
  const auto [eager, all] = run("off");
  const auto [recorded, some] = run("on");
  EXPECT_LT(some, all);
  EXPECT_TRUE(same(recorded, eager));
}

// An invalid class label: the error is that of the step, and training may continue.
TEST(StepGraphHazards, ErrorsWithinAStep) {
  const auto run = [](const char* step_graph) {
    torch::manual_seed(1);
    const auto model = std::make_shared<CountedNet>();
    Trainer trainer({.step_graph = step_graph});
    trainer.prepare_model(model);
    std::vector<std::string> errors;
    for (int i = 0; i < 40; ++i) {
      at::Tensor labels = at::randint(5, {16});
      if (i % 7 == 6) labels[3] = 9;
      try {
        trainer.train_step(Batch{at::randn({16, 1, 8, 8}), labels});
      } catch (const std::exception& error) {
        errors.push_back(std::to_string(i) + std::string(error.what()).substr(0, 200));
      }
      if (i % 10 == 9) trainer.finish_epoch();
    }
    std::vector<at::Tensor> values;
    for (const auto& p : model->parameters()) values.push_back(p.detach());
    for (const auto& b : model->buffers()) values.push_back(b);
    values.push_back(at::rand({3}));
    return std::tuple(values, errors, model->num_calls);
  };
  const auto [eager, eager_errors, all] = run("off");
  const auto [recorded, errors, some] = run("on");
  EXPECT_EQ(errors, eager_errors);
  EXPECT_LT(some, all / 2);
  for (std::size_t i = 0; i < eager.size(); ++i) EXPECT_TRUE(same(recorded[i], eager[i])) << i;
}

// An operator that gives nothing may still object.
TEST(StepGraphHazards, ChecksWithinAStep) {
  const auto errors = [](const char* step_graph) {
    const auto net = std::make_shared<FreeNet>();
    net->step = [](FreeNet& model, const Batch& batch) {
      return model.forward(at::linalg_inv(batch[0])).pow(2).mean();
    };
    Trainer trainer({.step_graph = step_graph, .optimizer = sgd(0.05)});
    trainer.prepare_model(net);
    int num_errors = 0;
    for (int i = 0; i < 20; ++i) try {
        trainer.train_step(Batch{i % 9 == 8 ? at::zeros({4, 4}) : at::eye(4)});
      } catch (const std::exception&) {
        ++num_errors;
      }
    return std::pair(num_errors, net->num_calls);
  };
  EXPECT_EQ(errors("off"), std::pair(2, 20));
  EXPECT_EQ(errors("on").first, 2);
  EXPECT_LT(errors("on").second, 10);
}

// Another run within a step, and several at the same time.
TEST(StepGraphHazards, NestedTrainers) {
  const std::vector<Batch> batches{Batch{at::randn({6, 4})}, Batch{at::randn({6, 4})}};
  expect_same_training(batches, "it trains another model", [&](FreeNet& net) {
    auto inner = std::make_shared<FreeNet>();
    auto trainer = std::make_shared<Trainer>(TrainerOptions{.step_graph = "on", .optimizer = sgd(0.05)});
    const torch::NoGradGuard no_grad;
    inner->linear->weight.fill_(0.1);
    inner->linear->bias.fill_(0.1);
    trainer->prepare_model(inner);
    net.step = [inner, trainer](FreeNet& model, const Batch& batch) {
      const at::Tensor loss = model.forward(batch[0]).pow(2).mean() * inner->linear->weight.detach().sum();
      trainer->train_step(batch);
      return loss;
    };
  });
}

struct Square : Module {
  at::Tensor forward(const at::Tensor& x) override { return linear->forward(x); }
  at::Tensor training_step(const Batch& batch) override { return forward(batch[0]).pow(2).mean(); }
  torch::nn::Linear linear{register_module("linear", torch::nn::Linear(4, 4))};
};

// At the same address, of the same sizes.
TEST(StepGraphHazards, WeightTransposedInPlace) {
  const Batch batch{at::randn({6, 4})};
  const auto trained = [&](const char* step_graph) {
    const auto net = std::make_shared<Square>();
    Trainer trainer({.step_graph = step_graph, .optimizer = sgd(0.05)});
    {
      const torch::NoGradGuard no_grad;
      net->linear->weight.copy_(at::arange(16).view({4, 4}) * 0.1 - 0.4);
      net->linear->bias.zero_();
    }
    trainer.prepare_model(net);
    for (int i = 0; i < 16; ++i) {
      if (i == 8) net->linear->weight.set_data(net->linear->weight.detach().t());
      trainer.train_step(batch);
    }
    return net->linear->weight.detach().clone();
  };
  EXPECT_TRUE(same(trained("on"), trained("off")));
}

TEST(StepGraphHazards, TrainersInThreads) {
  const std::vector<Batch> batches{Batch{at::randn({6, 4})}, Batch{at::randn({6, 4})}};
  std::vector<FreeTraining> made(2);
  std::vector<std::thread> threads;
  // Made here: what one draws while the other's step is compared would make that differ.
  for (const auto& model : {std::make_shared<FreeNet>(), std::make_shared<FreeNet>()})
    threads.emplace_back([&one = made[threads.size()], &batches, net = model] {
      const torch::NoGradGuard no_grad;
      Trainer trainer({.step_graph = "on", .optimizer = sgd(0.05)});
      net->linear->weight.fill_(0.1);
      net->linear->bias.fill_(0.1);
      trainer.prepare_model(net);
      for (int i = 0; i < 2000; ++i) trainer.train_step(batches[static_cast<std::size_t>(i % 2)]);
      one.values = {net->linear->weight.detach(), net->linear->bias.detach()};
      one.num_calls = net->num_calls;
    });
  for (auto& thread : threads) thread.join();
  EXPECT_LT(made[0].num_calls, 100);
  EXPECT_TRUE(same(made[0].values[0], made[1].values[0]));
}

TEST(StepGraphHazards, GradientsOutliveTheTrainer) {
  const auto net = std::make_shared<FreeNet>();
  at::Tensor kept, copy;
  {
    Trainer trainer({.step_graph = "on", .optimizer = sgd(0.05)});
    trainer.prepare_model(net);
    for (int i = 0; i < 20; ++i) trainer.train_step(Batch{at::randn({6, 4})});
    trainer.finish_epoch();
    kept = net->linear->weight.grad();
    copy = kept.clone();
  }
  EXPECT_LT(net->num_calls, 10);
  EXPECT_TRUE(same(kept, copy));
  EXPECT_TRUE(same(net->linear->weight.grad(), copy));
}

}  // namespace
}  // namespace kindling
