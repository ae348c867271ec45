#include "kindling/nn/module.h"

#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include "kindling/base/error.h"
#include "kindling/models/linear_regression.h"
#include "kindling/models/small_cnn.h"
#include "kindling/nn/lazy_linear.h"
#include "kindling/tensors/move.h"
#include "kindling/training/trainer.h"
#include "support/device_under_test.h"
#include "support/scratch.h"
#include "support/tensor_matchers.h"
#include "training/state/training_context.h"

namespace kindling {
namespace {

class Bare : public Module {};

// Two inputs: x·w1 + y·w2.
class TwoInputs : public Module {
 public:
  at::Tensor forward_inputs(const Batch& batch) override { return batch[0] + batch[1] * 10; }
  at::Tensor loss(const at::Tensor& outputs, const at::Tensor& labels) override {
    return (outputs - labels).abs().mean();
  }
};

TEST(Module, ReportsFunctionsThatAreNotDefined) {
  const auto bare = std::make_shared<Bare>();
  const std::string forward = error_text<Error>([&] { bare->forward(at::ones({1})); });
  EXPECT_NE(forward.find("Bare::forward: the model does not define it"), std::string::npos) << forward;
  EXPECT_NE(forward.find("override forward() for one input or forward_inputs() for several"),
            std::string::npos);
  const std::string loss = error_text<Error>([&] { bare->loss(at::ones({1}), at::ones({1})); });
  EXPECT_NE(loss.find("Bare::loss: the model does not define it"), std::string::npos) << loss;
}

TEST(Module, StepIsTheLossOfTheOutputsAgainstTheLabels) {
  const auto model = std::make_shared<TwoInputs>();
  const Batch batch{at::tensor({1.f, 2.f}), at::tensor({3.f, 4.f}), at::tensor({30.f, 40.f})};
  EXPECT_TRUE(same(model->predict_step(batch), at::tensor({31.f, 42.f})));
  EXPECT_TRUE(same(model->training_step(batch), at::scalar_tensor(1.5, at::kFloat)));
}

TEST(Module, HasNoOptimizerByDefault) {
  EXPECT_EQ(std::make_shared<Bare>()->configure_optimizers(), nullptr);
}

TEST(Module, LogsNothingOutsideOfATrainer) {
  const auto bare = std::make_shared<Bare>();
  EXPECT_NO_THROW(bare->log("x", at::ones({1})));
  EXPECT_FALSE(bare->trainer());
}

TEST(Module, PlotsNothingOutsideOfATrainer) {
  const auto bare = std::make_shared<Bare>();
  bare->plot("x", at::ones({1}), /*train=*/true);
  EXPECT_TRUE(bare->board().chart().curves.empty());
  EXPECT_EQ(bare->board().options().xlabel, "epoch");
}

class Initialized : public OnDevice {};
KINDLING_RUN_ON_DEVICES(Initialized);

TEST_P(Initialized, LazyLayersGetParametersAndEveryLayerItsInit) {
  const auto model = std::make_shared<SmallCnn>();
  move_to(*model, device_);
  const at::Tensor images = at::rand({4, 1, 8, 8}).to(device_);
  model->apply_init(Batch{images, at::zeros({4}, at::kLong).to(device_)}, [](torch::nn::Module& layer) {
    if (auto* linear = layer.as<LazyLinearImpl>()) linear->weight.fill_(0.5);
  });
  EXPECT_TRUE(model->is_training());
  int num_linear = 0;
  for (const auto& item : model->named_parameters()) {
    EXPECT_EQ(item.value().device(), device_) << item.key();
    EXPECT_TRUE(item.value().requires_grad()) << item.key();
    if (item.key().ends_with(".weight") && item.value().dim() == 2) {
      EXPECT_TRUE(same(item.value(), at::full_like(item.value(), 0.5))) << item.key();
      ++num_linear;
    }
  }
  EXPECT_EQ(num_linear, 2);
  for (const auto& item : model->named_buffers())
    if (item.key().ends_with("running_mean")) {
      EXPECT_TRUE(same(item.value(), at::zeros_like(item.value()))) << "the dry run has left a trace";
    }
}

TEST(Module, InitIsOptional) {
  const auto model = std::make_shared<LinearRegression>();
  model->apply_init({at::ones({2, 3})});
  EXPECT_EQ(model->parameters()[0].sizes(), (at::IntArrayRef{1, 3}));
}

TEST(TrainerView, IsEmptyWithoutATrainer) {
  const TrainerView view;
  EXPECT_FALSE(view);
  EXPECT_TRUE(view.gpus().empty());
  EXPECT_EQ(view.device(), cpu());
  EXPECT_EQ(view.max_epochs(), std::nullopt);
  EXPECT_EQ(view.epoch() + view.batch_index() + view.num_train_batches() + view.global_step(), 0);
}

TEST(TrainerView, ReturnsWhatTheTrainerWrites) {
  EpochLog log(cpu());
  Trainer owner;
  const auto context =
      std::make_shared<TrainingContext>(owner, TrainerOptions{.max_epochs = 4}, std::vector<Device>{});
  context->placement.gpus = {gpu(1)};
  context->state.num_train_batches = 3;
  context->state.progress = {.epoch = 1, .batch = 2, .global_step = 5};
  const LogScope scope(context->calls, &log);
  const TrainerView view(context);
  EXPECT_TRUE(view);
  EXPECT_EQ(view.device(), gpu(1));
  EXPECT_EQ(view.max_epochs(), 4);
  EXPECT_EQ(view.epoch(), 1);
  EXPECT_EQ(view.batch_index(), 2);
  EXPECT_EQ(view.num_train_batches(), 3);
  EXPECT_EQ(view.global_step(), 5);
  EXPECT_EQ(view.log(), &log);
}

TEST(TrainerView, IsEmptyAfterTheTrainerIsDestroyed) {
  const auto model = std::make_shared<Bare>();
  {
    Trainer trainer({.max_epochs = 3});
    trainer.prepare_model(model);
    EXPECT_TRUE(model->trainer());
    EXPECT_EQ(model->trainer().max_epochs(), 3);
  }
  EXPECT_FALSE(model->trainer());
  EXPECT_EQ(model->trainer().max_epochs(), std::nullopt);
  EXPECT_NO_THROW(model->log("x", at::ones({1})));
}

}  // namespace
}  // namespace kindling
