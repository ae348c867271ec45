// Models of Python's by name, in Kindling's and in a user's own modules: what
// tests/models/fixtures/python_models.py writes.

#include <gtest/gtest.h>
#include <torch/nn.h>

#include <fstream>
#include <sstream>

#include "kindling/models/lenet.h"
#include "kindling/models/linear_regression.h"
#include "kindling/models/mlp.h"
#include "kindling/models/mlp_regressor.h"
#include "kindling/models/softmax_regression.h"
#include "kindling/optim/adam.h"
#include "kindling/tensors/state_dict.h"
#include "support/python.h"
#include "support/scratch.h"
#include "support/tensor_matchers.h"

namespace kindling {
namespace {

namespace fs = std::filesystem;
namespace nn = torch::nn;

const fs::path kModelFixtures = fs::path(KINDLING_TESTS) / "models" / "fixtures";

// --- as a user writes them, with Python's names ---
struct BasicBlock : nn::Module {
  BasicBlock(std::int64_t in, std::int64_t out, std::int64_t stride) {
    register_module("conv1", nn::Conv2d(nn::Conv2dOptions(in, out, 3).stride(stride).padding(1).bias(false)));
    register_module("bn1", nn::BatchNorm2d(out));
    register_module("conv2", nn::Conv2d(nn::Conv2dOptions(out, out, 3).padding(1).bias(false)));
    register_module("bn2", nn::BatchNorm2d(out));
    if (stride == 1) return;
    const nn::Conv2d narrow(nn::Conv2dOptions(in, out, 1).stride(stride).bias(false));
    register_module("downsample", nn::Sequential{narrow, nn::BatchNorm2d(out)});
  }
};

struct ResNet18 : nn::Module {
  ResNet18() {
    register_module("conv1", nn::Conv2d(nn::Conv2dOptions(3, 2, 7).stride(2).padding(3).bias(false)));
    register_module("bn1", nn::BatchNorm2d(2));
    const std::int64_t widths[] = {2, 2, 4, 6, 8};
    for (int i = 0; i < 4; ++i) {
      nn::ModuleList layer;
      layer->push_back(std::make_shared<BasicBlock>(widths[i], widths[i + 1], i == 0 ? 1 : 2));
      layer->push_back(std::make_shared<BasicBlock>(widths[i + 1], widths[i + 1], 1));
      register_module("layer" + std::to_string(i + 1), layer);
    }
    register_module("fc", nn::Linear(8, 5));
  }
};

struct TransposedLinear : nn::Module {
  TransposedLinear(std::int64_t in, std::int64_t out) {
    register_parameter("weight", at::zeros({in, out}));
    register_parameter("bias", at::zeros({out}));
  }
};

struct Gpt2 : nn::Module {
  Gpt2() {
    const auto part = [](auto&& to, const std::string& name) {
      return to->register_module(name, std::make_shared<nn::Module>());
    };
    const auto transformer = register_module("transformer", std::make_shared<nn::Module>());
    const auto wte = transformer->register_module("wte", nn::Embedding(11, 8));
    transformer->register_module("wpe", nn::Embedding(6, 8));
    const auto block = part(part(transformer, "h"), "0");
    const auto norm = [] { return nn::LayerNorm(nn::LayerNormOptions({8})); };
    block->register_module("ln_1", norm());
    const auto attention = part(block, "attn");
    attention->register_buffer("bias", at::zeros({1, 1, 6, 6}, at::kBool));
    attention->register_module("c_attn", std::make_shared<TransposedLinear>(8, 24));
    attention->register_module("c_proj", std::make_shared<TransposedLinear>(8, 8));
    block->register_module("ln_2", norm());
    const auto mlp = part(block, "mlp");
    mlp->register_module("c_fc", std::make_shared<TransposedLinear>(8, 16));
    mlp->register_module("c_proj", std::make_shared<TransposedLinear>(16, 8));
    transformer->register_module("ln_f", norm());
    register_module("lm_head", nn::Linear(nn::LinearOptions(8, 11).bias(false)))->weight = wte->weight;
  }
};

struct LstmClassifier : nn::Module {
  LstmClassifier() {
    register_module("embedding", nn::Embedding(11, 3));
    register_module("lstm",
                    nn::LSTM(nn::LSTMOptions(3, 4).num_layers(2).bidirectional(true).batch_first(true)));
    register_module("fc", nn::Linear(8, 2));
  }
};

// Loads both files of a model, expects every tensor to be bit-identical to Python's, and saves it again.
void expect_loads_model(nn::Module& module, const fs::path& folder, const std::string& name,
                        const LoadOptions& options = {}) {
  SCOPED_TRACE(name);
  const StateDict wanted = renamed(load_state_file(folder / (name + ".pt")), options);
  for (const char* ending : {".pt", ".safetensors"}) {
    const LoadReport report = load_weights(module, folder / (name + ending), options);
    const StateDict found = state_dict(module);
    ASSERT_EQ(found.tensors.size(), wanted.tensors.size()) << report.text();
    for (const auto& [key, tensor] : wanted.tensors) {
      ASSERT_NE(found.find(key), nullptr) << key;
      EXPECT_EQ(found.find(key)->scalar_type(), tensor.scalar_type()) << key;
      EXPECT_TRUE(same(found.find(key)->detach(), tensor)) << key;
    }
    for (const auto& [key, tensor] : found.tensors) tensor.detach().zero_();
  }
  load_weights(module, folder / (name + ".pt"), options);
}

// A model of Dive into Deep Learning also computes what Python's does.
template <class Model>
void expect_is_pythons(const std::shared_ptr<Model>& model, const fs::path& folder, const std::string& name,
                       const LoadOptions& options = {}) {
  expect_loads_model(*model, folder, name, options);
  const StateDict io = load_state_file(folder / (name + ".io.pt"));
  // Sums of up to 784 products of floats, in another order.
  EXPECT_TRUE(close(model->forward(*io.find("x")).detach(), *io.find("y"), 1e-5)) << name;
}

TEST(PythonsModel, IsLoadedByItsNames) {
  expect_is_pythons(std::make_shared<Mlp>(MlpOptions{.hidden = {4}, .num_classes = 3}), kModelFixtures,
                    "small_mlp");
  expect_loads_model(*std::make_shared<Gpt2>(), kModelFixtures, "gpt2");
  expect_loads_model(*std::make_shared<LstmClassifier>(), kModelFixtures, "lstm");
}

// Trains with the data of regressor.pt, which Python has trained with.
void expect_trains_as_python(const fs::path& file) {
  const StateDict python = load_state_file(file);
  const auto model = std::make_shared<MlpRegressor>(
      MlpRegressorOptions{.hidden = {8, 5}, .num_targets = 2, .activation = "tanh"});
  model->forward(python.find("x")->select(0, 0));
  {
    const torch::NoGradGuard no_grad;
    for (auto& item : model->named_parameters()) item.value().copy_(*python.find("first." + item.key()));
  }
  Adam adam(ParameterGroups(model->parameters()), {.lr = 0.01});
  for (std::int64_t step = 0; step < 20; ++step) {
    adam.zero_grad();
    const at::Tensor loss =
        model->loss(model->forward(python.find("x")->select(0, step)), python.find("y")->select(0, step));
    loss.backward();
    adam.step();
    EXPECT_TRUE(close(loss.detach(), python.find("losses")->select(0, step), 1e-6)) << step;
  }
  // Sums of 16 samples in another order; 20 steps of Adam by at most 0.01 each.
  for (const auto& item : model->named_parameters())
    EXPECT_TRUE(close(item.value().detach(), *python.find("last." + item.key()), 1e-5)) << item.key();
}

TEST(PythonsModel, OfNumbersIsTrainedEquallyInTwentySteps) {
  expect_trains_as_python(kModelFixtures / "regressor.pt");
}

int run_python(const std::string& what, const fs::path& folder) {
  return std::system((python_with_torch() + " -W ignore " + (kModelFixtures / "python_models.py").string() +
                      " " + what + " " + folder.string() + " >" + (folder / "log").string() + " 2>&1")
                         .c_str());
}

std::string log_in(const fs::path& folder) {
  std::ostringstream text;
  text << std::ifstream(folder / "log").rdbuf();
  return text.str();
}

TEST(PythonsModel, IsExchangedBitIdentically) {
  if (python_with_torch().empty())
    GTEST_SKIP() << "there is no Python with PyTorch; KINDLING_TORCH_PYTHON can name one";
  const Scratch scratch;
  const fs::path& folder = scratch.folder();
  ASSERT_EQ(run_python("write", folder), 0) << log_in(folder);
  const auto save = [&](const nn::Module& model, const std::string& name, const LoadOptions& back = {}) {
    save_torch(renamed(state_dict(model), back), folder / (name + ".ours.pt"));
  };
  const auto both = [&](const auto& model, const std::string& name) {
    expect_is_pythons(model, folder, name);
    save(*model, name);
  };
  both(std::make_shared<Mlp>(MlpOptions{.hidden = {4}, .num_classes = 3}), "small_mlp");
  both(std::make_shared<Mlp>(), "mlp");
  both(std::make_shared<Lenet>(), "lenet");
  both(std::make_shared<SoftmaxRegression>(), "softmax_regression");
  const auto regression = std::make_shared<LinearRegression>();  // that of d2l is one layer, not a list
  expect_is_pythons(regression, folder, "linear_regression", {.map = {{"net.", "net.0."}}});
  save(*regression, "linear_regression", {.map = {{"net.0.", "net."}}});
  expect_trains_as_python(folder / "regressor.pt");
  const auto own = [&](const auto& model, const std::string& name) {
    expect_loads_model(*model, folder, name);
    save(*model, name);
  };
  own(std::make_shared<ResNet18>(), "resnet18");
  own(std::make_shared<Gpt2>(), "gpt2");
  own(std::make_shared<LstmClassifier>(), "lstm");
  EXPECT_EQ(run_python("check", folder), 0) << log_in(folder);
}

}  // namespace
}  // namespace kindling
