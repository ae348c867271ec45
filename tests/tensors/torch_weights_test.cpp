// Weights between Python's .pt files and modules. The fixtures hold what
// tests/formats/fixtures/make_torch_files.py says, written by three versions of PyTorch.

#include <gtest/gtest.h>
#include <torch/nn.h>

#include "kindling/base/error.h"
#include "kindling/tensors/state_dict.h"
#include "support/scratch.h"
#include "support/tensor_matchers.h"

namespace kindling {
namespace {

const std::filesystem::path kTorchFixtures = KINDLING_FIXTURES;
constexpr const char* kTorchVersions[] = {"torch_1.13.1", "torch_2.4.1", "torch_2.13.0"};

struct Residual : torch::nn::Module {
  torch::nn::Conv2d conv =
      register_module("conv", torch::nn::Conv2d(torch::nn::Conv2dOptions(2, 3, 3).bias(false)));
  torch::nn::BatchNorm2d bn = register_module("bn", torch::nn::BatchNorm2d(3));
  torch::nn::Sequential downsample = register_module(
      "downsample", torch::nn::Sequential{torch::nn::Conv2d(2, 3, 1), torch::nn::BatchNorm2d(3)});
};

struct Gpt : torch::nn::Module {
  Gpt() { lm_head->weight.set_data(wte->weight); }
  torch::nn::Embedding wte = register_module("wte", torch::nn::Embedding(5, 4));
  torch::nn::LayerNorm ln = register_module("ln", torch::nn::LayerNorm(torch::nn::LayerNormOptions({4})));
  torch::nn::Linear attn = register_module("attn", torch::nn::Linear(4, 12));
  at::Tensor mask = register_buffer("mask", at::zeros({1, 1, 3, 3}, at::kBool));
  torch::nn::Linear lm_head =
      register_module("lm_head", torch::nn::Linear(torch::nn::LinearOptions(4, 5).bias(false)));
};

void expect_same_state(const StateDict& found, const StateDict& wanted) {
  ASSERT_EQ(found.tensors.size(), wanted.tensors.size());
  for (const auto& [name, tensor] : wanted.tensors) {
    ASSERT_NE(found.find(name), nullptr) << name;
    EXPECT_EQ(found.find(name)->scalar_type(), tensor.scalar_type()) << name;
    EXPECT_TRUE(same(found.find(name)->detach(), tensor)) << name;
  }
}

void expect_loads(torch::nn::Module& module, const std::string& name) {
  const StateDict wanted = load_safetensors(kTorchFixtures / "expected" / (name + ".safetensors"));
  for (const std::string version : kTorchVersions) {
    SCOPED_TRACE(version + " " + name);
    for (const auto& [_, tensor] : state_dict(module).tensors) tensor.detach().zero_();
    const LoadReport report = load_weights(module, kTorchFixtures / version / (name + ".pt"));
    EXPECT_EQ(report.loaded.size(), wanted.tensors.size());
    expect_same_state(state_dict(module), wanted);
  }
}

TEST(TorchWeights, OfPythonModelsAreLoadedBitIdentically) {
  expect_loads(*std::make_shared<Residual>(), "resnet");
  const auto gpt = std::make_shared<Gpt>();
  expect_loads(*gpt, "gpt");
  EXPECT_TRUE(gpt->lm_head->weight.is_alias_of(gpt->wte->weight));
  torch::nn::LSTM lstm(torch::nn::LSTMOptions(2, 3).num_layers(2).bidirectional(true));
  expect_loads(*lstm, "lstm");
}

TEST(TorchWeights, OfAnyKindAreReadAsAStateDict) {
  for (const std::string version : kTorchVersions) {
    SCOPED_TRACE(version);
    expect_same_state(load_state_file(kTorchFixtures / version / "kinds.pt"),
                      load_safetensors(kTorchFixtures / "expected" / "kinds.safetensors"));
    expect_same_state(load_state_file(kTorchFixtures / version / "nested.pt", "model"),
                      load_safetensors(kTorchFixtures / "expected" / "nested.safetensors"));
  }
  expect_same_state(load_state_file(kTorchFixtures / "expected" / "kinds.safetensors"),
                    load_safetensors(kTorchFixtures / "expected" / "kinds.safetensors"));
}

TEST(TorchWeights, ThatAreTiedInPythonAreTiedHere) {
  const StateDict state = load_state_file(kTorchFixtures / "torch_2.13.0" / "gpt.pt");
  EXPECT_TRUE(state.find("wte.weight")->is_same(*state.find("lm_head.weight")));
}

TEST(TorchWeights, AreRecognisedByTheirBytesNotTheirName) {
  const Scratch scratch;
  std::filesystem::copy(kTorchFixtures / "torch_2.4.1" / "resnet.pt", scratch / "x.safetensors");
  std::filesystem::copy(kTorchFixtures / "expected" / "resnet.safetensors", scratch / "x.pt");
  for (const char* name : {"x.safetensors", "x.pt"}) {
    const auto residual = std::make_shared<Residual>();
    EXPECT_EQ(load_weights(*residual, scratch / name).loaded.size(), 13u) << name;
  }
}

TEST(TorchWeights, TakeTheOptionsOfAnyWeights) {
  const std::filesystem::path path = kTorchFixtures / "torch_2.13.0" / "resnet.pt";
  torch::nn::BatchNorm2d norm(3);
  const LoadReport report = load_weights(*norm, path, {.prefix = "downsample.1."});
  EXPECT_EQ(report.loaded.size(), 5u);
  EXPECT_TRUE(same(norm->running_var, *load_state_file(path).find("downsample.1.running_var")));
  torch::nn::BatchNorm2d wider(4);
  const std::string text =
      error_text<CheckpointError>([&] { load_weights(*wider, path, {.prefix = "bn."}); });
  EXPECT_NE(text.find("'weight' has the shape [3], the model's is [4]"), std::string::npos) << text;
}

TEST(TorchWeights, ComeBackFromAFileThatWasSavedHere) {
  const Scratch scratch;
  const auto gpt = std::make_shared<Gpt>();
  save_torch(state_dict(*gpt), scratch / "x.pt");
  const StateDict read = load_state_file(scratch / "x.pt");
  expect_same_state(read, state_dict(*gpt));
  EXPECT_TRUE(read.find("wte.weight")->is_same(*read.find("lm_head.weight")));
  const at::Tensor matrix = at::rand({3, 4});
  save_torch({.tensors = {{"t", matrix.t()}, {"row", matrix[1]}}, .metadata = {{"epoch", "3"}}},
             scratch / "x.pt");
  expect_same_state(load_state_file(scratch / "x.pt"),
                    {.tensors = {{"t", matrix.t()}, {"row", matrix[1]}}, .metadata = {}});
}

TEST(TorchWeights, HaveNoKeyInASafetensorsFile) {
  const std::filesystem::path path = kTorchFixtures / "expected" / "gpt.safetensors";
  EXPECT_EQ(
      error_text<CheckpointError>([&] { load_state_file(path, "model"); }),
      path.string() + ": it is not a file of torch.save, and only those have keys; omit the key 'model'");
}

TEST(TorchWeights, AreRenamedAsTheyWouldBeLoaded) {
  const at::Tensor one = at::ones({1});
  const StateDict state{.tensors = {{"m.b.w", one}, {"m.a.w", one}, {"other", one}},
                        .metadata = {{"k", "v"}}};
  const StateDict found = renamed(state, {.prefix = "m.", .map = {{"a.", "z."}}});
  ASSERT_EQ(found.tensors.size(), 2u);
  EXPECT_EQ(found.tensors[0].first, "b.w");
  EXPECT_EQ(found.tensors[1].first, "z.w");
  EXPECT_EQ(found.metadata, state.metadata);
  EXPECT_THROW(renamed(state, {.prefix = "m.", .map = {{"a.", "b."}}}), CheckpointError);
}

}  // namespace
}  // namespace kindling
