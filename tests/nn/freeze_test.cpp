#include <ATen/Functions.h>
#include <gtest/gtest.h>
#include <torch/nn.h>

#include "kindling/base/error.h"
#include "kindling/nn/lazy_linear.h"
#include "kindling/nn/module.h"
#include "kindling/optim/adam.h"
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

TEST(FrozenLayer, DoesNotChangeDuringAFit) {
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

TEST(FrozenLayer, StaysFrozenInACustomLoop) {
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

TEST(FrozenLayer, CanBeUnfrozenInsideAFrozenBlock) {
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

TEST(FrozenLayer, MustBelongToTheModel) {
  const auto model = std::make_shared<Normed>();
  torch::nn::Linear other(1, 1);
  const std::string text = error_text<Error>([&] { model->freeze(*other); });
  EXPECT_NE(text.find("::freeze: the layer (torch::nn::LinearImpl) is not a part of the model; register it"),
            std::string::npos)
      << text;
}

// lazy → norm → head
class LateShapes : public Normed {
 public:
  LateShapes() { register_module("lazy", lazy); }
  at::Tensor forward(const at::Tensor& input) override { return Normed::forward(lazy->forward(input)); }
  LazyLinear lazy{3};
};

using NameList = std::vector<std::string>;

NameList learning_names(const Module& model) {
  NameList names;
  for (const auto& item : model.named_parameters())
    if (item.value().requires_grad()) names.push_back(item.key());
  return names;
}

TEST(FrozenLayer, StaysFrozenWhenALazyLayerGetsItsShape) {
  const auto model = std::make_shared<LateShapes>();
  model->freeze(*model->lazy);
  EXPECT_EQ(model->parameter_names().back(), "lazy.bias");
  NoNumbers data;
  Trainer({.max_epochs = 1, .num_sanity_val_steps = 0}).fit(model, data);
  ASSERT_TRUE(model->lazy->is_materialized());
  EXPECT_FALSE(model->lazy->weight.requires_grad());
  EXPECT_FALSE(model->lazy->bias.requires_grad());
  model->unfreeze(*model->lazy);
  EXPECT_TRUE(model->lazy->weight.requires_grad());

  const auto again = std::make_shared<LateShapes>();
  again->freeze(*again->lazy);
  again->unfreeze(*again);
  again->lazy->forward(at::ones({2, 3}));
  EXPECT_TRUE(again->lazy->weight.requires_grad());
}

TEST(FrozenByName, FreezesPartsWhoseParametersAllMatchAsAWhole) {
  const auto model = std::make_shared<Normed>();
  model->freeze_by_name({"norm.*", "block.?.*", "head.bias"});
  EXPECT_EQ(learning_names(*model), NameList{"head.weight"});
  EXPECT_TRUE(model->frozen_layers().contains("norm"));
  EXPECT_TRUE(model->frozen_layers().contains("block")) << "and with it the dropout, which has no parameters";
  EXPECT_FALSE(model->frozen_layers().contains("head"));
  const StateDict before = copy_to(state_dict(*model), cpu());
  NoNumbers data;
  Trainer({.max_epochs = 2,
           .optimizer =
               [](const ParameterGroups& all) {
                 return std::make_unique<AdamW>(all, AdamWOptions{.lr = 0.1, .weight_decay = 0.5});
               }})
      .fit(model, data);
  EXPECT_EQ(changed(before, *model), NameList{"head.weight"}) << "no decay, and no running statistics";
}

TEST(FrozenByName, FreezesOnlyTheParametersOfAPartlyMatchedPart) {
  const auto model = std::make_shared<Normed>();
  model->freeze_by_name({"norm.weight"});
  EXPECT_TRUE(model->frozen_layers().empty());
  const StateDict before = copy_to(state_dict(*model), cpu());
  NoNumbers data;
  Trainer({.max_epochs = 1}).fit(model, data);
  EXPECT_TRUE(same(*before.find("norm.weight"), model->norm->weight));
  EXPECT_FALSE(same(*before.find("norm.running_mean"), model->norm->running_mean));
}

TEST(FrozenByName, MatchesBuffersOfANormWithoutParameters) {
  class Plain : public Normed {
   public:
    Plain() { register_module("plain", plain); }
    at::Tensor forward(const at::Tensor& input) override { return Normed::forward(plain->forward(input)); }
    torch::nn::BatchNorm1d plain{torch::nn::BatchNorm1dOptions(3).affine(false)};
  };
  const auto model = std::make_shared<Plain>();
  model->freeze_by_name({"plain.*"});
  const StateDict before = copy_to(state_dict(*model), cpu());
  NoNumbers data;
  Trainer({.max_epochs = 1}).fit(model, data);
  EXPECT_TRUE(same(*before.find("plain.running_mean"), model->plain->running_mean));
}

TEST(FrozenByName, LazyLayersNeedNoShape) {
  const auto model = std::make_shared<LateShapes>();
  model->freeze_by_name({"lazy.weight", "norm.*"});
  NoNumbers data;
  Trainer({.max_epochs = 1, .num_sanity_val_steps = 0}).fit(model, data);
  EXPECT_EQ(learning_names(*model),
            (NameList{"block.1.weight", "block.1.bias", "head.weight", "head.bias", "lazy.bias"}));
  const auto whole = std::make_shared<LateShapes>();
  whole->freeze_by_name({"lazy.*"});
  EXPECT_EQ(whole->frozen_layers(), std::set<std::string>{"lazy"});
}

TEST(FrozenByName, IsRestoredWhenARunResumes) {
  // Before its lazy layer has a shape, and after a step.
  for (const bool has_shape : {false, true}) {
    Trainer trainer({.max_epochs = 1});
    const auto model = std::make_shared<LateShapes>();
    model->freeze_by_name({"lazy.weight", "norm.*"});
    trainer.prepare_model(model);
    const Batch batch{at::arange(12, at::kFloat).view({4, 3}), at::ones({4, 1})};
    if (has_shape) trainer.train_step(batch);
    const StateDict saved = copy_to(trainer.state_dict(), cpu());
    const auto rest = std::make_shared<LateShapes>();
    rest->freeze_by_name({"lazy.bias"});  // is not what was saved
    Trainer again({.max_epochs = 1});
    again.prepare_model(rest);
    again.load_state_dict(saved);
    again.train_step(batch);
    if (!has_shape) trainer.train_step(batch);
    EXPECT_EQ(learning_names(*rest), learning_names(*model));
    EXPECT_EQ(rest->frozen_layers(), model->frozen_layers());
    EXPECT_FALSE(rest->norm->is_training());
  }
}

TEST(FrozenByName, RejectsAPatternWithoutAMatch) {
  const auto model = std::make_shared<LateShapes>();
  EXPECT_EQ(
      error_text<ConfigError>([&] {
        model->freeze_by_name({"norm.*", "lasy.*"});
      }).substr(model->name().size()),
      "::freeze_by_name: 'lasy.*' matches no name; expected: one of norm.weight, norm.bias, block.1.weight, "
      "block.1.bias, head.weight, head.bias, lazy.weight, lazy.bias; did you mean 'lazy.*'?");
  EXPECT_TRUE(model->frozen_layers().empty()) << "nothing has been frozen";
}

}  // namespace
}  // namespace kindling
