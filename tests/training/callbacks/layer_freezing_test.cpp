#include "kindling/training/layer_freezing.h"

#include <ATen/Functions.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "kindling/base/error.h"
#include "kindling/data/data_module.h"
#include "kindling/nn/lazy_linear.h"
#include "kindling/nn/module.h"
#include "kindling/optim/adam.h"
#include "kindling/optim/sgd.h"
#include "kindling/tensors/state_dict.h"
#include "kindling/training/trainer.h"
#include "support/scratch.h"
#include "support/tensor_matchers.h"

namespace kindling {
namespace {

// features (lazy linear → batch norm) → head; a fit may capture its steps.
class FeaturesAndHead : public Module {
 public:
  FeaturesAndHead() {
    register_module("features", features);
    register_module("head", head);
  }
  at::Tensor forward(const at::Tensor& input) override { return head->forward(features->forward(input)); }
  at::Tensor loss(const at::Tensor& outputs, const at::Tensor& labels) override {
    return (outputs - labels).square().mean();
  }
  bool has_static_graph() const override { return true; }

  torch::nn::Sequential features{LazyLinear(3), torch::nn::BatchNorm1d(3)};
  torch::nn::Linear head{3, 1};
};

class FourBatches : public DataModule {
 public:
  FourBatches() : DataModule({.batch_size = 4}) {}
  std::shared_ptr<DataLoader> train_dataloader() override {
    const at::Tensor x = at::arange(48, at::kFloat).view({16, 3}).sin();
    return get_tensorloader({x, x.sum(1, /*keepdim=*/true)}, /*train=*/true);
  }
};

// The parts whose values have changed in each epoch: "features head".
struct ChangedParts : Callback {
  void on_train_epoch_start(Trainer&, Module& model) override { before = copy_to(state_dict(model), cpu()); }
  void on_epoch_end(Trainer&, Module& model, const Record&) override {
    std::string parts;
    for (const char* part : {"features.", "head."})
      for (const auto& [name, tensor] : state_dict(model).tensors)
        if (name.starts_with(part) && !same(*before.find(name), tensor)) {
          parts += part;
          break;
        }
    of_epochs.push_back(parts);
  }
  StateDict before;
  std::vector<std::string> of_epochs;
};

struct FrozenFit {
  std::vector<std::string> changed;
  StateDict weights;
};

FrozenFit fit_frozen(const std::string& step_graph, const OptimizerFactory& optimizer) {
  at::manual_seed(3);
  const auto model = std::make_shared<FeaturesAndHead>();
  model->apply_init(Batch{at::ones({4, 3})});
  const auto changes = std::make_shared<ChangedParts>();
  FourBatches data;
  TrainerOptions options;
  options.max_epochs = 4;
  options.optimizer = optimizer;
  options.step_graph = step_graph;
  options.callbacks = {
      std::make_shared<LayerFreezing>(LayerFreezingOptions{.patterns = {"features.*"}, .epochs = 2}),
      changes};
  Trainer trainer(options);
  trainer.fit(model, data);
  return {changes->of_epochs, copy_to(state_dict(*model), cpu())};
}

const OptimizerFactory kAdamWithDecay = [](ParameterGroups parameters) -> std::unique_ptr<Optimizer> {
  return std::make_unique<AdamW>(std::move(parameters), AdamWOptions{.lr = 0.01, .weight_decay = 0.5});
};

TEST(LayerFreezing, TrainsThePartsAfterItsEpochs) {
  const std::vector<std::string> expected{"head.", "head.", "features.head.", "features.head."};
  // Neither weight decay nor momentum moves what is frozen.
  EXPECT_EQ(fit_frozen("off", kAdamWithDecay).changed, expected);
  EXPECT_EQ(fit_frozen("off",
                       [](ParameterGroups parameters) -> std::unique_ptr<Optimizer> {
                         return std::make_unique<Sgd>(
                             std::move(parameters),
                             SgdOptions{.lr = 0.01, .momentum = 0.9, .weight_decay = 0.1});
                       })
                .changed,
            expected);
}

TEST(LayerFreezing, CapturesTheStepsAgainAfterItsEpochs) {
  const FrozenFit captured = fit_frozen("on", kAdamWithDecay), eager = fit_frozen("off", kAdamWithDecay);
  EXPECT_EQ(captured.changed, eager.changed);
  for (const auto& [name, tensor] : eager.weights.tensors)
    EXPECT_TRUE(same(*captured.weights.find(name), tensor)) << name;
}

TEST(LayerFreezing, RefusesUnknownNames) {
  const auto model = std::make_shared<FeaturesAndHead>();
  FourBatches data;
  Trainer trainer({.max_epochs = 1,
                   .callbacks = {std::make_shared<LayerFreezing>(
                       LayerFreezingOptions{.patterns = {"feature.*"}, .epochs = 1})}});
  const std::string text = error_text<ConfigError>([&] { trainer.fit(model, data); });
  EXPECT_NE(text.find("::freeze_by_name: 'feature.*' matches no name; expected: one of features.0.weight, "
                      "features.0.bias, features.1.weight, features.1.bias, head.weight, head.bias; did you "
                      "mean 'features.*'?"),
            std::string::npos)
      << text;
  EXPECT_EQ(error_text<ConfigError>([] { LayerFreezing({.patterns = {"a"}, .epochs = -1}); }),
            "LayerFreezing: epochs is -1; expected: an integer >= 0");
}

// The names of the trained parameters in each epoch.
struct TrainedNames : Callback {
  void on_epoch_end(Trainer&, Module& model, const Record&) override {
    std::string names;
    for (const auto& item : model.named_parameters())
      if (item.value().requires_grad()) names += item.key() + " ";
    of_epochs.push_back(names);
  }
  std::vector<std::string> of_epochs;
};

// The longer of the two decides, whichever callback comes first.
TEST(LayerFreezing, KeepsFrozenWhatAnotherOneStillFreezes) {
  const auto part =
      std::make_shared<LayerFreezing>(LayerFreezingOptions{.patterns = {"features.0.*"}, .epochs = 2});
  const std::string rest = "features.1.weight features.1.bias head.weight head.bias ";
  for (const bool begins_with_part : {false, true}) {
    const auto model = std::make_shared<FeaturesAndHead>();
    const auto names = std::make_shared<TrainedNames>();
    // The head learns from the start, so that the loss always has a gradient.
    const auto features =
        std::make_shared<LayerFreezing>(LayerFreezingOptions{.patterns = {"features.*"}, .epochs = 1});
    TrainerOptions options{.max_epochs = 3, .optimizer = kAdamWithDecay};
    options.callbacks = {features, part, names};
    if (begins_with_part) std::swap(options.callbacks[0], options.callbacks[1]);
    FourBatches data;
    Trainer(options).fit(model, data);
    EXPECT_EQ(names->of_epochs, (std::vector<std::string>{"head.weight head.bias ", rest,
                                                          "features.0.weight features.0.bias " + rest}))
        << begins_with_part;
  }
}

std::vector<std::string> frozen_names(const Module& model) {
  std::vector<std::string> names;
  for (const auto& item : model.named_parameters())
    if (!item.value().requires_grad()) names.push_back(item.key());
  return names;
}

TEST(UnfreezeByName, UndoesFreezeByName) {
  FeaturesAndHead model;
  model.apply_init(Batch{at::ones({4, 3})});
  model.freeze_by_name({"features.*", "head.weight"});
  EXPECT_EQ(frozen_names(model),
            (std::vector<std::string>{"features.0.weight", "features.0.bias", "features.1.weight",
                                      "features.1.bias", "head.weight"}));
  EXPECT_EQ(model.frozen_layers(), (std::set<std::string>{"features", "features.0", "features.1"}));
  model.unfreeze_by_name({"features.1.*"});
  EXPECT_EQ(frozen_names(model),
            (std::vector<std::string>{"features.0.weight", "features.0.bias", "head.weight"}));
  EXPECT_EQ(model.frozen_layers(), (std::set<std::string>{"features.0"}));
  EXPECT_TRUE(model.features->ptr(1)->is_training());
  EXPECT_FALSE(model.features->ptr(0)->is_training());
  model.unfreeze_by_name({"*"});
  EXPECT_EQ(frozen_names(model), std::vector<std::string>());
  EXPECT_TRUE(model.frozen_layers().empty());
  const std::string text = error_text<ConfigError>([&] { model.unfreeze_by_name({"tail.*"}); });
  EXPECT_NE(text.find("::unfreeze_by_name: 'tail.*' matches no name"), std::string::npos) << text;
}

TEST(UnfreezeByName, CoversLazyLayers) {
  FeaturesAndHead model;
  model.freeze_by_name({"features.0.*"});
  model.unfreeze_by_name({"features.0.bias"});
  model.apply_init(Batch{at::ones({4, 3})});
  EXPECT_EQ(frozen_names(model), std::vector<std::string>{"features.0.weight"});
}

}  // namespace
}  // namespace kindling
