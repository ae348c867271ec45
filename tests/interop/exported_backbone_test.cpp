#include "kindling/interop/exported_backbone.h"

#include <ATen/Functions.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/linear.h>

#include <cstdlib>
#include <memory>
#include <string>

#include "kindling/base/error.h"
#include "kindling/base/file.h"
#include "kindling/data/data_module.h"
#include "kindling/interop/export_program.h"
#include "kindling/nn/sequential_net.h"
#include "kindling/optim/adam.h"
#include "kindling/tensors/state_dict.h"
#include "kindling/training/layer_freezing.h"
#include "kindling/training/trainer.h"
#include "support/python.h"
#include "support/scratch.h"

namespace kindling {
namespace {

struct Features : SequentialNet<Module> {
  Features()
      : SequentialNet(torch::nn::Sequential(
            // The gradient of a bias before a batch norm would be rounding errors alone, which Adam scales
            // up.
            torch::nn::Linear(torch::nn::LinearOptions(6, 8).bias(false)), torch::nn::BatchNorm1d(8),
            torch::nn::ReLU())) {}
};

std::filesystem::path exported_features(const Scratch& scratch) {
  at::manual_seed(1);
  Features features;
  export_program(features, Batch{at::randn({4, 6})}, {.path = scratch / "features.pt2", .train = true});
  return scratch / "features.pt2";
}

struct Clusters : DataModule {
  Clusters() : DataModule({.batch_size = 8}) {
    y = at::arange(64).remainder(3);
    x = at::randn({64, 6}) + y.unsqueeze(1);
  }
  std::shared_ptr<DataLoader> train_dataloader() override {
    return get_tensorloader({x, y}, /*train=*/false);  // in their order
  }
  at::Tensor x, y;
};

// Three epochs, of which the first trains the head alone.
void train_new_head(const std::shared_ptr<ExportedBackbone>& model, DataModule& data,
                    const std::string& step_graph) {
  TrainerOptions options;
  options.max_epochs = 3;
  options.step_graph = step_graph;
  options.callbacks = {
      std::make_shared<LayerFreezing>(LayerFreezingOptions{.patterns = {"backbone.*"}, .epochs = 1})};
  options.optimizer = [](ParameterGroups parameters) -> std::unique_ptr<Optimizer> {
    return std::make_unique<AdamW>(std::move(parameters), AdamWOptions{.lr = 0.01, .weight_decay = 0.1});
  };
  Trainer trainer(options);
  trainer.fit(model, data);
}

std::shared_ptr<ExportedBackbone> backbone_of(const std::filesystem::path& program) {
  at::manual_seed(2);
  const auto model =
      std::make_shared<ExportedBackbone>(ExportedBackboneOptions{.program = program, .num_classes = 3});
  model->apply_init(Batch{at::randn({4, 6})});
  return model;
}

TEST(ExportedBackbone, HasTheExportedWeightsAndANewHead) {
  const Scratch scratch;
  const auto model = backbone_of(exported_features(scratch));
  EXPECT_EQ(model->parameter_names(),
            (std::vector<std::string>{"backbone.net.0.weight", "backbone.net.1.weight", "backbone.net.1.bias",
                                      "head.weight", "head.bias"}));
  ExportedModule alone({.file = scratch / "features.pt2"});
  const at::Tensor x = at::randn({5, 6});
  model->eval();
  alone.eval();
  const StateDict state = state_dict(*model);
  const at::Tensor expected =
      at::linear(alone.forward(x), *state.find("head.weight"), *state.find("head.bias"));
  EXPECT_TRUE(at::equal(model->forward(x), expected));
  EXPECT_TRUE(at::equal(model->forward_inputs(Batch{x, at::zeros({5}, at::kLong)}), expected));
}

TEST(ExportedBackbone, TrainsIdenticallyWithAndWithoutStepCapture) {
  const Scratch scratch;
  const std::filesystem::path program = exported_features(scratch);
  const auto eager = backbone_of(program), captured = backbone_of(program);
  Clusters data;
  train_new_head(eager, data, "off");
  train_new_head(captured, data, "on");
  for (const auto& [name, tensor] : state_dict(*eager).tensors)
    EXPECT_TRUE(at::equal(tensor, *state_dict(*captured).find(name))) << name;
}

TEST(ExportedBackbone, TrainsLikeItsTwinInPython) {
  if (python_with_torch().empty()) GTEST_SKIP() << "no Python with PyTorch is here to train the twin";
  const int threads = at::get_num_threads();
  at::set_num_threads(1);
  const Scratch scratch;
  const auto model = backbone_of(exported_features(scratch));
  Clusters data;
  StateDict start = copy_to(state_dict(*model), cpu());
  start.tensors.emplace_back("x", data.x);
  start.tensors.emplace_back("y", data.y);
  save_torch(start, scratch / "start.pt");
  train_new_head(model, data, "auto");
  at::set_num_threads(threads);
  const std::string command = python_with_torch() + " " KINDLING_TESTS "/interop/train_new_head.py " +
                              scratch.folder().string() + " >" + (scratch / "log").string() + " 2>&1";
  ASSERT_EQ(std::system(command.c_str()), 0) << read_file(scratch / "log", 1 << 20);
  const StateDict twin = load_state_file(scratch / "twin.pt");
  EXPECT_EQ(twin.tensors.size(), state_dict(*model).tensors.size());
  for (const auto& [name, tensor] : twin.tensors) {
    const at::Tensor* const found = state_dict(*model).find(name);
    ASSERT_NE(found, nullptr) << name;
    // 24 steps; sums may be added in another order.
    EXPECT_TRUE(at::allclose(*found, tensor, /*rtol=*/1e-4, /*atol=*/1e-5)) << name;
    // The features stayed fixed in the first epoch, statistics included: 2 epochs of 8 batches count.
    if (name == "backbone.net.1.num_batches_tracked") {
      EXPECT_EQ(tensor.item<std::int64_t>(), 16);
    }
  }
}

struct Sums : Module {
  at::Tensor forward(const at::Tensor& x) override { return x.sum(1); }
};

TEST(ExportedBackbone, RefusesWhatHasNoFeatures) {
  EXPECT_EQ(error_text<ConfigError>([] { ExportedBackbone({}); }),
            "model.program: no file is given; expected: a .pt2 file saved by torch.export.save");
  const Scratch scratch;
  Sums sums;
  export_program(sums, Batch{at::ones({4, 6})}, {.path = scratch / "sums.pt2"});
  ExportedBackbone model({.program = scratch / "sums.pt2"});
  EXPECT_EQ(error_text<DataError>([&] {
              model.forward(at::ones({4, 6}));
            }),
            "ExportedBackbone: the first output of the program is Float [4]; expected: floating-point "
            "features [batch, ...]");
}

}  // namespace
}  // namespace kindling
