// The optimizer exists before the first step; a model with lazy layers runs that step once before, for their
// shapes.
#include <ATen/Functions.h>
#include <gtest/gtest.h>
#include <torch/nn.h>

#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "device/random_state.h"
#include "kindling/nn/lazy_linear.h"
#include "kindling/optim/sgd.h"
#include "support/tensor_matchers.h"
#include "training/loop/small_fit.h"
#include "training/step/optimizer_update.h"

namespace kindling {
namespace {

// scale · net(x), where the net draws random numbers between the weights of its lazy layers and after them.
class Drawing : public Module {
 public:
  explicit Drawing(bool is_lazy) : scale(register_parameter("scale", at::ones({1}))) {
    if (is_lazy)
      net->push_back(LazyLinear(6));
    else
      net->push_back(torch::nn::Linear(3, 6));
    net->push_back(torch::nn::BatchNorm1d(6));
    net->push_back(torch::nn::Dropout(0.5));
    if (is_lazy) net->push_back(LazyLinear(4));
    net->push_back(torch::nn::Dropout(0.5));
    register_module("net", net);
  }
  at::Tensor training_step(const Batch& batch) override {
    ++num_calls;
    if (throws) throw std::runtime_error("not yet");
    log("noise", at::rand({1}));
    return (scale * net->forward(batch[0])).square().mean();
  }

  at::Tensor scale;
  torch::nn::Sequential net;
  int num_calls = 0;
  bool throws = false;
};

Batch inputs() { return Batch{at::arange(15, at::kFloat).reshape({5, 3})}; }

// The weights are drawn where the step itself reaches the layers, so that all random numbers are those of a
// model that has seen no batch before.
TEST(FirstStep, DrawsTheSameNumbersAsAStepByHand) {
  at::manual_seed(5);
  Drawing by_hand(/*is_lazy=*/true);
  const at::Tensor loss = by_hand.training_step(inputs());
  const at::Tensor next = at::rand({1});

  at::manual_seed(5);
  const auto model = std::make_shared<Drawing>(/*is_lazy=*/true);
  Trainer trainer({.max_epochs = 1, .optimizer = sgd(0)});
  trainer.prepare_model(model);
  trainer.train_step(inputs());
  EXPECT_TRUE(same(at::rand({1}), next));
  EXPECT_EQ(trainer.finish_epoch().at("train_loss"), loss.item<float>());
  ASSERT_EQ(model->parameters().size(), 7U);
  for (std::size_t i = 0; i < 7; ++i)
    EXPECT_TRUE(same(model->parameters()[i].detach(), by_hand.parameters()[i].detach())) << i;
  for (std::size_t i = 0; i < model->buffers().size(); ++i)
    EXPECT_TRUE(same(model->buffers()[i], by_hand.buffers()[i])) << i;
  EXPECT_EQ(model->num_calls, 2);
}

TEST(FirstStep, RunsOnceWithoutLazyLayers) {
  const auto model = std::make_shared<Drawing>(/*is_lazy=*/false);
  Trainer trainer({.optimizer = sgd(0.1)});
  trainer.prepare_model(model);
  trainer.train_step(inputs());
  EXPECT_EQ(model->num_calls, 1);
}

struct Begun {
  explicit Begun(TrainerOptions options) : context(owner, std::move(options), /*gpus=*/{}) {
    context.state.start(model);
  }
  Trainer owner;
  TrainingContext context;
  const std::shared_ptr<Drawing> model = std::make_shared<Drawing>(/*is_lazy=*/true);
};

TEST(FirstStep, LeavesNothingBehindWhenItFindsTheShapes) {
  Begun run({.optimizer = sgd(0.1)});
  run.model->scale.mutable_grad() = at::full({1}, 5.F);
  const auto random = random_state(cpu());
  const std::vector<at::Tensor> buffers = [&] {
    std::vector<at::Tensor> copies;
    for (const at::Tensor& buffer : run.model->buffers()) copies.push_back(buffer.clone());
    return copies;
  }();
  create_optimizer(StepContext(run.context), inputs());
  ASSERT_TRUE(run.context.state.optimizer);
  EXPECT_EQ(run.context.state.optimizer->parameters().size(), 7U);
  EXPECT_TRUE(same(random_state(cpu())[0], random[0]));
  EXPECT_TRUE(same(run.model->scale.grad(), at::full({1}, 5.F)));
  for (std::size_t i = 0; i < buffers.size(); ++i)
    EXPECT_TRUE(same(run.model->buffers()[i], buffers[i])) << i;
  EXPECT_FALSE(run.context.state.log.has_marks());
  EXPECT_EQ(run.context.calls.log, nullptr);
}

TEST(FirstStep, MayBeRepeatedAfterAnError) {
  at::manual_seed(5);
  Drawing by_hand(/*is_lazy=*/true);
  by_hand.training_step(inputs());
  at::manual_seed(5);
  Begun run({.optimizer = sgd(0.1)});
  run.model->throws = true;
  EXPECT_THROW(create_optimizer(StepContext(run.context), inputs()), std::runtime_error);
  EXPECT_FALSE(run.context.state.optimizer);
  run.model->throws = false;
  create_optimizer(StepContext(run.context), inputs());
  run.model->training_step(inputs());
  for (std::size_t i = 0; i < 7; ++i)
    EXPECT_TRUE(same(run.model->parameters()[i].detach(), by_hand.parameters()[i].detach())) << i;
}

// Creates layers when it sees its first batch: all of them, or one in addition to its scale.
class Growing : public Module {
 public:
  explicit Growing(bool has_scale) {
    if (has_scale) register_parameter("scale", at::ones({1}));
  }
  at::Tensor training_step(const Batch& batch) override {
    if (!layer) layer = register_module("layer", torch::nn::Linear(batch[0].size(1), 2));
    noise = at::rand({1});
    return layer->forward(batch[0]).square().mean();
  }

  torch::nn::Linear layer{nullptr};
  at::Tensor noise;
};

TEST(FirstStep, RefusesParametersThatTheOptimizerDoesNotHave) {
  const auto model = std::make_shared<Growing>(/*has_scale=*/true);
  Trainer trainer({.optimizer = sgd(0.1)});
  trainer.prepare_model(model);
  try {
    trainer.train_step(inputs());
    FAIL() << "the layer would never be trained";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("2 parameters, such as 'layer.bias'"), std::string::npos)
        << error.what();
  }
}

// Its weights come from the random numbers of the rehearsal, so the step continues after them.
TEST(FirstStep, DrawsOtherNumbersThanTheWeightsOfAModelThatCreatesAllOfThem) {
  at::manual_seed(5);
  Growing by_hand(/*has_scale=*/false);
  by_hand.training_step(inputs());
  const at::Tensor next = at::rand({1}), before = by_hand.layer->weight.detach().clone();

  at::manual_seed(5);
  const auto model = std::make_shared<Growing>(/*has_scale=*/false);
  Trainer trainer({.optimizer = sgd(0.1)});
  trainer.prepare_model(model);
  trainer.train_step(inputs());
  EXPECT_TRUE(same(model->noise, next));
  EXPECT_FALSE(same(model->layer->weight.detach(), before));  // it has been trained
}

}  // namespace
}  // namespace kindling
