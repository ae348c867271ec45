#include "kindling/interop/export_program.h"

#include <gtest/gtest.h>

#include "device/random_state.h"
#include "interop/run/exported_models.h"
#include "interop/run/in_python.h"
#include "kindling/base/error.h"
#include "kindling/base/file.h"
#include "kindling/data/data_module.h"
#include "kindling/interop/exported_module.h"
#include "kindling/models/lenet.h"
#include "kindling/models/linear_regression.h"
#include "kindling/models/mlp.h"
#include "kindling/models/resnet18.h"
#include "kindling/models/small_cnn.h"
#include "kindling/models/softmax_regression.h"
#include "kindling/models/unet.h"
#include "kindling/models/unet_regressor.h"
#include "kindling/nn/evaluation_guard.h"
#include "kindling/optim/sgd.h"
#include "kindling/tensors/state_dict.h"
#include "kindling/training/trainer.h"
#include "support/python.h"
#include "support/scratch.h"
#include "support/tensor_matchers.h"

namespace kindling {
namespace {

using namespace exported_models;
using Example = std::function<Batch(std::int64_t)>;

// The recorded sizes are 5, 7, 10, 11 and 12.
constexpr std::int64_t kTried[] = {1, 3, 5, 7, 27};

Batch images(std::int64_t n, std::int64_t channels, std::int64_t size) {
  return {at::randn({n, channels, size, size}), at::randint(10, {n})};
}

// Changes the initial statistics of batch norm.
void warm_up(Module& model, const Batch& batch) {
  model.apply_init(batch);
  model.train();
  model.forward_inputs(batch);
}

// With the tested batch sizes. `inputs` of an example are the inputs of the program; labels follow them.
void add_with_batches(InPython& python, const std::string& name, const std::shared_ptr<Module>& model,
                      const Example& example, std::size_t inputs = 1) {
  warm_up(*model, example(8));
  std::vector<Batch> cases;
  for (const std::int64_t size : kTried) {
    const Batch batch = example(size);
    cases.emplace_back(std::vector<at::Tensor>(batch.tensors().begin(), batch.tensors().begin() + inputs));
  }
  python.add(name, model, example(6), cases);
}

Batch words(std::int64_t n) { return {at::randint(50, {n, 12}), at::randint(50, {n, 12})}; }

Batch ids_and_mask(std::int64_t n) {
  return Batch::map({{"ids", Batch::leaf(at::randint(50, {n, 9}))},
                     {"mask", Batch::leaf(at::randint(2, {n, 9}).to(at::kBool))}});
}

TEST(ExportProgram, WritesWhatPythonReads) {
  if (python_with_torch().empty())
    GTEST_SKIP() << "there is no Python with PyTorch; KINDLING_TORCH_PYTHON can name one";
  torch::manual_seed(1);
  InPython python;
  const auto digits = [](std::int64_t n) { return images(n, 1, 28); };
  python.with_onnx = true;
  add_with_batches(python, "mlp", std::make_shared<Mlp>(), digits);
  add_with_batches(python, "lenet", std::make_shared<Lenet>(), digits);
  add_with_batches(python, "small_cnn", std::make_shared<SmallCnn>(), digits);
  add_with_batches(python, "softmax_regression", std::make_shared<SoftmaxRegression>(), digits);
  add_with_batches(python, "linear_regression", std::make_shared<LinearRegression>(), [](std::int64_t n) {
    return Batch{at::randn({n, 2}), at::randn({n, 1})};
  });
  add_with_batches(python, "resnet", std::make_shared<ResNet>(),
                   [](std::int64_t n) { return images(n, 3, 32); });
  add_with_batches(python, "resnet18", std::make_shared<Resnet18>(),
                   [](std::int64_t n) { return images(n, 3, 32); });
  add_with_batches(
      python, "resnet18_small_images",
      std::make_shared<Resnet18>(Resnet18Options{.num_classes = 5, .in_channels = 1, .small_images = true}),
      [](std::int64_t n) { return images(n, 1, 8); });
  add_with_batches(python, "unet", std::make_shared<Unet>(UnetOptions{.width = 4, .depth = 2}),
                   [](std::int64_t n) { return images(n, 3, 12); });
  for (const char* const mode : {"replicate", "circular"})  // operators that only layers of C++ call
    add_with_batches(python, std::string("unet_regressor_") + mode,
                     std::make_shared<UnetRegressor>(UnetRegressorOptions{
                         .in_channels = 2, .out_channels = 1, .width = 4, .depth = 2, .padding_mode = mode}),
                     [](std::int64_t n) {
                       return Batch{at::randn({n, 2, 9, 12})};
                     });
  add_with_batches(python, "gru", std::make_shared<Gru>(), [](std::int64_t n) {
    return Batch{at::randn({n, 11, 8})};
  });
  add_with_batches(python, "lstm", std::make_shared<Lstm>(), words);
  add_with_batches(python, "gpt", std::make_shared<Gpt>(), words);
  add_with_batches(python, "encoder", std::make_shared<Encoder>(), [](std::int64_t n) {
    return Batch{at::randn({n, 6, 32})};
  });
  add_with_batches(
      python, "two_inputs", std::make_shared<TwoInputs>(),
      [](std::int64_t n) {
        return Batch{at::randn({n, 1, 9, 9}), at::randn({n, 6}), at::randint(3, {n})};
      },
      /*inputs=*/2);
  const auto maps = std::make_shared<Dictionaries>();
  const auto run = [&](const Batch& batch) { return maps->run(batch); };
  std::vector<Batch> cases;
  for (const std::int64_t size : kTried) cases.push_back(ids_and_mask(size));
  python.add("dictionaries", *maps, run, ids_and_mask(6), cases);
  const std::string log = python.expect_same();
  EXPECT_NE(log.find("'wte.weight'"), std::string::npos) << log;
  EXPECT_NE(log.find("['logits', 'pooled']"), std::string::npos) << log;
}

// A step like those of train_exported.py, after the batches of the model.
void save_first_step(const std::filesystem::path& file, Module& model, const Batch& batch) {
  model.train();
  torch::manual_seed(7);
  const at::Tensor loss = model.loss(model.forward_inputs(batch), batch.labels());
  loss.backward();
  StateDict state{.tensors = {{"x", batch[0]}, {"y", batch[1]}, {"loss", loss.detach()}}, .metadata = {}};
  for (const auto& item : model.named_parameters())
    state.tensors.emplace_back("after." + item.key(), item.value().detach() - 0.1 * item.value().grad());
  for (const auto& item : model.named_buffers())
    state.tensors.emplace_back("after." + item.key(), item.value());
  save_torch(state, file);
}

TEST(ExportProgram, WritesWhatPythonTrains) {
  if (python_with_torch().empty())
    GTEST_SKIP() << "there is no Python with PyTorch; KINDLING_TORCH_PYTHON can name one";
  const Scratch scratch;
  torch::manual_seed(2);
  const auto resnet = std::make_shared<ResNet>();
  const auto gpt = std::make_shared<Gpt>();
  export_program(*resnet, images(6, 3, 32), {.path = scratch / "resnet.pt2", .train = true});
  export_program(*gpt, words(6), {.path = scratch / "gpt.pt2", .train = true});
  save_first_step(scratch / "resnet.pt", *resnet, images(9, 3, 32));
  save_first_step(scratch / "gpt.pt", *gpt, words(9));
  const std::string log = said_by_script(scratch, "train_exported.py " + scratch.folder().string());
  EXPECT_NE(log.find("resnet ok "), std::string::npos) << log;
  EXPECT_NE(log.find("gpt ok "), std::string::npos) << log;
}

// The gradient of layer norm's bias for 8,192 rows, the mean of 2·(norm + bias), is 2·bias: LibTorch adds it
// up in bfloat16 and stops at a small part of it.
TEST(ExportProgram, AddsUpInFloat32InMixedPrecision) {
  struct Normed : Module {
    Normed() {
      register_module("norm", norm);
      at::NoGradGuard no_grad;
      norm->bias.fill_(1);
    }
    at::Tensor forward(const at::Tensor& rows) override {
      return norm->forward(at::linear(rows, at::eye(8)));
    }
    torch::nn::LayerNorm norm{torch::nn::LayerNormOptions({8})};
  };
  struct Rows : DataModule {
    Rows() : DataModule({.batch_size = 8192}) {}
    std::shared_ptr<DataLoader> train_dataloader() override {
      return train_loader_of({at::randn({8192, 8}), at::zeros({8192, 8})});
    }
  };
  const Scratch scratch;
  Normed model;
  export_program(model, {at::randn({6, 8})}, {.path = scratch / "norm.pt2", .train = true});
  const auto program =
      std::make_shared<ExportedModule>(ExportedModuleOptions{.file = scratch / "norm.pt2", .loss = "mse"});
  Rows rows;
  Trainer({.max_steps = 1,
           .precision = "bf16-mixed",
           .optimizer =
               [](ParameterGroups parameters) {
                 return std::make_unique<Sgd>(std::move(parameters), SgdOptions{.lr = 1});
               }})
      .fit(program, rows);
  const at::Tensor bias = *state_dict(*program).find("norm.bias");
  EXPECT_LT((bias - (1 - 2. / 8)).abs().max().item<double>(), 0.01) << bias;
}

std::string refusal(int kind) {
  const Scratch scratch;
  Trap model(kind);
  const Batch example{at::randn({4, 4})};
  const std::string text =
      error_text<Error>([&] { export_program(model, example, {.path = scratch / "trap.pt2"}); });
  EXPECT_FALSE(std::filesystem::exists(scratch / "trap.pt2")) << kind;
  return text;
}

TEST(ExportProgram, RefusesForwardsThatCannotBecomePrograms) {
  const std::string same_operators =
      "; expected: a forward pass that calls the same operators for every batch size";
  EXPECT_EQ(refusal(2),
            "operator aten::item in or after layer l: the host reads a value, and the program may "
            "then depend on it; expected: a forward pass that can be exported as a program of operators; "
            "compute with "
            "the tensor instead");
  EXPECT_EQ(refusal(3),
            "operator aten::div.Scalar in or after layer l: its argument other depends on the batch (its "
            "size or its values): 5, 7, 12, 10, 11" +
                same_operators + "; compute it with operators, or pass it as an integer computed from sizes");
  EXPECT_EQ(refusal(4),
            "operator aten::unbind.int in or after layer l: the number of tensors that it returns depends on "
            "the batch "
            "(its size or its values)" +
                same_operators);
  EXPECT_EQ(refusal(5),
            "operator aten::chunk in or after layer l: its argument chunks depends on the batch (its size or "
            "its values) (5, 7, 12, 10, 11) but must be constant" +
                same_operators + "; use another operator");
  EXPECT_EQ(
      refusal(6),
      "operator aten::slice.Tensor in or after layer l: its argument end is 2 with a batch of 5; 3 with "
      "a "
      "batch of 7; 6 with a batch of 12; 5 with a batch of 10; 5 with a batch of 11" +
          same_operators +
          "; only polynomials in the dynamic sizes can be exported, such as 2 * batch + 1, without quotients "
          "or powers above 3; a fixed size allows any number (dynamic_batch = false)");
}

TEST(ExportProgram, WritesUnusualForwards) {
  if (python_with_torch().empty())
    GTEST_SKIP() << "there is no Python with PyTorch; KINDLING_TORCH_PYTHON can name one";
  torch::manual_seed(3);
  InPython python;
  const auto rows = [](std::int64_t n) { return Batch{at::randn({n, 4})}; };
  for (const int kind : {0, 1, 7})
    add_with_batches(python, "trap" + std::to_string(kind), std::make_shared<Trap>(kind), rows);
  python.expect_same();
}

TEST(ExportProgram, WritesTheValuesOfLazyViews) {
  struct Negative : Module {
    Negative() { values = register_buffer("values", at::_neg_view(at::arange(4, at::kFloat))); }
    at::Tensor forward(const at::Tensor& x) override { return x + values; }
    at::Tensor values;
  };
  const Scratch scratch;
  Negative model;
  export_program(model, Batch{at::ones({4, 4})}, {.path = scratch / "model.pt2"});
  ExportedModule read({.file = scratch / "model.pt2", .loss = "mse"});
  EXPECT_TRUE(same(read.forward(at::zeros({2, 4})), -at::arange(4, at::kFloat).expand({2, 4})));
}

// Everything that a forward pass can change.
struct Everything {
  explicit Everything(const Module& model) : random(random_state(cpu())) {
    for (const auto& [name, tensor] : state_dict(model).tensors) values.push_back(tensor.detach().clone());
    for (const auto& layer : model.modules(/*include_self=*/false)) modes.push_back(layer->is_training());
    modes.push_back(model.is_training());
  }
  std::vector<at::Tensor> values, random;
  std::vector<bool> modes;
};

// Draws random numbers, changes its statistics and a parameter, and fails at the end if requested.
struct Restless : Module {
  Restless() {
    register_module("norm", norm);
    register_module("drop", drop);
    weight = register_parameter("weight", at::ones({4}));
  }
  at::Tensor forward(const at::Tensor& x) override {
    {
      const at::NoGradGuard no_grad;
      weight.mul_(2);
    }
    const at::Tensor y = drop(norm(x)) * weight;
    if (fails) throw std::runtime_error("it failed");
    return y;
  }
  torch::nn::BatchNorm1d norm{4};
  torch::nn::Dropout drop{0.5};
  at::Tensor weight;
  bool fails = false;
};

TEST(ExportProgram, RestoresTheModel) {
  const Scratch scratch;
  for (const bool fails : {false, true})
    for (const bool train : {false, true}) {
      Restless model;
      model.fails = fails;
      model.norm->eval();
      const Batch example{at::randn({4, 4})};
      const Everything before(model);
      const auto write = [&] {
        export_program(model, example, {.path = scratch / "model.pt2", .train = train});
      };
      // In training mode, gradients flow through the parameter that it modifies.
      const std::string text = error_text<std::exception>(write);
      EXPECT_EQ(text.substr(0, 23), fails ? "it failed" : train ? "operator aten::mul_.Sca" : "(no error)");
      const Everything after(model);
      EXPECT_TRUE(same(after.random[0], before.random[0])) << fails << train;
      for (std::size_t i = 0; i < before.values.size(); ++i)
        EXPECT_TRUE(same(after.values[i], before.values[i])) << i << fails << train;
      EXPECT_EQ(after.modes, before.modes);
    }
}

}  // namespace
}  // namespace kindling
