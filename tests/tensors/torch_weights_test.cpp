// Weights between Python's .pt files and modules. The fixtures hold what
// tests/formats/fixtures/make_torch_files.py says, written by three versions of PyTorch.

#include <gtest/gtest.h>
#include <torch/nn.h>

#include "kindling/base/error.h"
#include "kindling/base/file.h"
#include "kindling/tensors/state_dict.h"
#include "support/scratch.h"
#include "support/tensor_matchers.h"
#include "tensors/state_tensors.h"

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

// A safetensors file as Python writes it: without checksums, and with any metadata.
void write_plain(const StateDict& state, const std::filesystem::path& path) {
  write_safetensors(path, HostTensors(state).writes, state.metadata);
}

// Python's save_model writes one of two tied weights, and the other's name into the metadata.
TEST(TorchWeights, OfSaveModelHaveAllTheirNames) {
  const Scratch scratch;
  const auto gpt = std::make_shared<Gpt>();
  StateDict state = state_dict(*gpt);
  const StateDict wanted = state_of_bytes(state_bytes(state), "x");
  std::erase_if(state.tensors, [](const auto& item) { return item.first == "wte.weight"; });
  state.metadata = {{"format", "pt"}, {"wte.weight", "lm_head.weight"}, {"other", "text"}};
  write_plain(state, scratch / "x.safetensors");
  const StateDict read = load_state_file(scratch / "x.safetensors");
  expect_same_state(read, wanted);
  EXPECT_TRUE(read.find("wte.weight")->is_same(*read.find("lm_head.weight")));
  for (const auto& [_, tensor] : state_dict(*gpt).tensors) tensor.detach().zero_();
  EXPECT_EQ(load_weights(*gpt, scratch / "x.safetensors").loaded.size(), wanted.tensors.size());
  expect_same_state(state_dict(*gpt), wanted);
  // A model need not have the second name, as in Python's load_model.
  const auto head = std::make_shared<torch::nn::LinearImpl>(torch::nn::LinearOptions(4, 5).bias(false));
  write_plain({.tensors = {{"weight", at::ones({5, 4})}}, .metadata = {{"tied", "weight"}}},
              scratch / "y.safetensors");
  const LoadReport report = load_weights(*head, scratch / "y.safetensors");
  EXPECT_EQ(report.text(), "1 tensors loaded");
  // Kindling's own files have checksums, and texts of their own.
  save_safetensors({.tensors = {{"a", at::ones({1})}}, .metadata = {{"b", "a"}}}, scratch / "z.safetensors");
  EXPECT_EQ(load_state_file(scratch / "z.safetensors").tensors.size(), 1u);
}

// As Hugging Face's libraries write a model that is larger than one file.
TEST(TorchWeights, AreReadFromSeveralFilesByTheirIndex) {
  const Scratch scratch;
  const at::Tensor a = at::rand({2, 3}), b = at::rand({4}), c = at::rand({1});
  write_plain({.tensors = {{"a", a}, {"b", b}}, .metadata = {{"format", "pt"}}},
              scratch / "m-00001-of-00002.safetensors");
  save_torch({.tensors = {{"c", c}}, .metadata = {}}, scratch / "m-00002-of-00002.bin");
  const std::filesystem::path index = scratch / "m.safetensors.index.json";
  const auto write_index = [&](const std::string& map) {
    write_file_atomically(index, "{\"metadata\": {\"total_size\": 44}, \"weight_map\": {" + map + "}}");
  };
  const std::string first =
                        "\"a\": \"m-00001-of-00002.safetensors\", \"b\": \"m-00001-of-00002.safetensors\"",
                    second = "\"c\": \"m-00002-of-00002.bin\"";
  write_index(first + ", " + second);
  expect_same_state(load_state_file(index), {.tensors = {{"a", a}, {"b", b}, {"c", c}}, .metadata = {}});
  const auto refusal = [&](const std::string& map) {
    write_index(map);
    return error_text<CheckpointError>([&] { load_state_file(index); });
  };
  EXPECT_NE(refusal("\"a\": \"m-00001-of-00002.safetensors\"")
                .find("does not contain the tensors that the index names"),
            std::string::npos);
  EXPECT_NE(refusal(first + ", \"d\": \"m-00002-of-00002.bin\"").find("does not contain the tensors"),
            std::string::npos);
  EXPECT_NE(refusal("\"a\": \"../m.safetensors\"")
                .find("weight_map \"a\": its file is \"../m.safetensors\"; expected: the name"),
            std::string::npos);
  EXPECT_NE(refusal("\"a\": \"m-00003-of-00002.safetensors\"").find("m-00003-of-00002.safetensors"),
            std::string::npos);
  EXPECT_NE(refusal("").find("weight_map: it is empty"), std::string::npos);
  EXPECT_NE(refusal(first + ", \"c\": 3").find("weight_map.c"), std::string::npos);
}

TEST(TorchWeights, OfAFileWithoutTensorsAreRefused) {
  const Scratch scratch;
  write_plain({}, scratch / "x.safetensors");
  const std::string refusal =
      error_text<CheckpointError>([&] { load_state_file(scratch / "x.safetensors"); });
  EXPECT_EQ(refusal,
            (scratch / "x.safetensors").string() + ": it contains no tensors; expected: a file of weights");
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
