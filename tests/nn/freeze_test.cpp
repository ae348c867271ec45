#include <ATen/Functions.h>
#include <gtest/gtest.h>
#include <torch/nn.h>

#include "kindling/base/error.h"
#include "kindling/nn/lazy_linear.h"
#include "kindling/nn/module.h"
#include "kindling/tensors/move.h"
#include "kindling/tensors/state_dict.h"
#include "kindling/training/trainer.h"
#include "support/device_under_test.h"
#include "support/scratch.h"
#include "support/tensor_matchers.h"

namespace kindling {
namespace {

// norm → head, and a dropout in a block of its own.
class Normed : public Module {
 public:
  Normed() {
    register_module("norm", norm);
    register_module("block", block);
    register_module("head", head);
  }
  at::Tensor forward(const at::Tensor& input) override {
    return head->forward(block->forward(norm->forward(input)));
  }
  at::Tensor loss(const at::Tensor& outputs, const at::Tensor& labels) override {
    return (outputs - labels).square().mean();
  }

  torch::nn::BatchNorm1d norm{3};
  torch::nn::Sequential block{torch::nn::Dropout(0.5), torch::nn::BatchNorm1d(3)};
  torch::nn::Linear head{3, 1};
};

class NoNumbers : public DataModule {
 public:
  NoNumbers() : DataModule({.batch_size = 4}) {}
  std::shared_ptr<DataLoader> train_dataloader() override {
    return get_tensorloader({at::arange(24, at::kFloat).view({8, 3}), at::ones({8, 1})}, /*train=*/true);
  }
  std::shared_ptr<DataLoader> val_dataloader() override {
    return get_tensorloader({at::arange(24, at::kFloat).view({8, 3}), at::ones({8, 1})}, /*train=*/false);
  }
};

// Of the parts of two states, the names whose values differ.
std::vector<std::string> changed(const StateDict& before, const Module& after) {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : state_dict(after).tensors)
    if (!same(*before.find(name), tensor)) names.push_back(name);
  return names;
}

TEST(FrozenLayer, StaysAsItIsOverAFit) {
  const auto model = std::make_shared<Normed>();
  model->freeze(*model->norm);
  model->freeze(*model->block);
  const StateDict before = copy_to(state_dict(*model), cpu());
  NoNumbers data;
  Trainer({.max_epochs = 2}).fit(model, data);
  EXPECT_EQ(changed(before, *model), (std::vector<std::string>{"head.weight", "head.bias"}));
  EXPECT_FALSE(model->block->is_training());
}

TEST(FrozenLayer, LearnsAgainWhenUnfrozen) {
  const auto model = std::make_shared<Normed>();
  model->freeze(*model);
  NoNumbers data;
  model->unfreeze(*model->norm);
  model->unfreeze(*model->head);
  const StateDict before = copy_to(state_dict(*model), cpu());
  Trainer({.max_epochs = 1}).fit(model, data);
  EXPECT_EQ(changed(before, *model),
            (std::vector<std::string>{"norm.weight", "norm.bias", "head.weight", "head.bias",
                                      "norm.running_mean", "norm.running_var", "norm.num_batches_tracked"}));
}

TEST(FrozenLayer, StaysFrozenInAnOwnLoop) {
  const auto model = std::make_shared<Normed>();
  Trainer trainer({.max_epochs = 1});
  trainer.prepare_model(model);
  const Batch batch{at::arange(12, at::kFloat).view({4, 3}), at::ones({4, 1})};
  trainer.train_step(batch);  // the optimizer has seen its gradients
  model->freeze(*model->norm);
  const StateDict before = copy_to(state_dict(*model), cpu());
  model->eval();
  trainer.train_step(batch);
  EXPECT_TRUE(model->is_training());
  for (const std::string& name : changed(before, *model)) EXPECT_FALSE(name.starts_with("norm.")) << name;
}

TEST(FrozenLayer, OfAFrozenBlockMayLearnAlone) {
  const auto model = std::make_shared<Normed>();
  model->freeze(*model->block);
  model->unfreeze(*model->block->ptr(1));
  model->eval();
  model->train();
  EXPECT_FALSE(model->block->ptr(0)->is_training());
  EXPECT_TRUE(model->block->ptr(1)->is_training());
}

TEST(FrozenLayer, KeepsItsModeInAModelWithinAModel) {
  class Outer : public Module {
   public:
    Outer() { register_module("inner", inner); }
    std::shared_ptr<Normed> inner = std::make_shared<Normed>();
  };
  const auto outer = std::make_shared<Outer>();
  outer->inner->freeze(*outer->inner->norm);
  outer->train();
  EXPECT_TRUE(outer->inner->is_training());
  EXPECT_FALSE(outer->inner->norm->is_training());
}

TEST(FrozenLayer, MustBeAPartWithParameters) {
  const auto model = std::make_shared<Normed>();
  torch::nn::Linear other(1, 1);
  const std::string text = error_text<Error>([&] { model->freeze(*other); });
  EXPECT_NE(text.find("::freeze: the layer (torch::nn::LinearImpl) is not a part of the model; register it"),
            std::string::npos)
      << text;
  model->block->push_back(LazyLinear(3));
  EXPECT_NE(error_text<Error>([&] {
              model->freeze(*model->block);
            }).find("a lazy layer of 'block' has no parameters yet"),
            std::string::npos);
}

}  // namespace
}  // namespace kindling
