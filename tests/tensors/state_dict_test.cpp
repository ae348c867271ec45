#include "kindling/tensors/state_dict.h"

#include <gtest/gtest.h>
#include <torch/nn.h>

#include <fstream>

#include "kindling/base/error.h"
#include "kindling/base/file.h"
#include "kindling/formats/safetensors.h"
#include "kindling/nn/lazy_conv2d.h"
#include "kindling/nn/lazy_linear.h"
#include "kindling/tensors/move.h"
#include "support/device_under_test.h"
#include "support/scratch.h"
#include "support/tensor_matchers.h"

namespace kindling {
namespace {

struct Net : torch::nn::Module {
  Net() {
    net->push_back(torch::nn::Linear(3, 2));
    net->push_back(torch::nn::BatchNorm1d(2));
    register_module("net", net);
  }
  torch::nn::Sequential net;
};

struct LazyNet : torch::nn::Module {
  LazyNet() {
    net->push_back(LazyConv2d(LazyConv2dOptions{.out_channels = 2}));
    net->push_back(torch::nn::Flatten());
    net->push_back(LazyLinear(4));
    register_module("net", net);
  }
  torch::nn::Sequential net;
};

std::vector<std::string> names_of(const StateDict& state) {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : state.tensors) names.push_back(name);
  return names;
}

TEST(StateDict, HasPythonsNames) {
  EXPECT_EQ(
      names_of(state_dict(*std::make_shared<Net>())),
      (std::vector<std::string>{"net.0.weight", "net.0.bias", "net.1.weight", "net.1.bias",
                                "net.1.running_mean", "net.1.running_var", "net.1.num_batches_tracked"}));
}

TEST(StateDict, HoldsTheModulesOwnTensors) {
  const auto net = std::make_shared<Net>();
  const StateDict state = state_dict(*net);
  EXPECT_TRUE(state.find("net.0.weight")->is_same(net->parameters()[0]));
  EXPECT_EQ(state.find("net.2.weight"), nullptr);
}

TEST(StateDict, SkipsLayersWithoutShape) {
  EXPECT_TRUE(state_dict(*std::make_shared<LazyNet>()).tensors.empty());
}

class LoadedState : public OnDevice {};
KINDLING_RUN_ON_DEVICES(LoadedState);

TEST_P(LoadedState, KeepsPlaceAndDtypeOfTheParameters) {
  const auto source = std::make_shared<Net>(), target = std::make_shared<Net>();
  move_to(*target, device_);
  target->net->ptr(0)->to(at::kDouble);
  const at::Tensor weight = target->parameters()[0];
  const void* place = weight.const_data_ptr();
  load_state_dict(*target, state_dict(*source));
  EXPECT_EQ(weight.const_data_ptr(), place);
  EXPECT_EQ(weight.device(), device_);
  EXPECT_TRUE(same(weight, source->parameters()[0].to(at::kDouble)));
  EXPECT_TRUE(same(target->buffers()[1], source->buffers()[1]));
  EXPECT_TRUE(weight.requires_grad());
}

TEST_P(LoadedState, RoundTripsBitIdenticallyThroughAFile) {
  const Scratch scratch;
  StateDict state;
  const at::Tensor numbers = at::arange(-3, 3, at::kDouble).view({2, 3}) / 7;
  for (const auto type : {at::kBool, at::kByte, at::kChar, at::kShort, at::kInt, at::kLong, at::kHalf,
                          at::kBFloat16, at::kFloat, at::kDouble})
    state.tensors.emplace_back(c10::toString(type), (numbers * 10).to(type).to(device_));
  state.tensors.emplace_back("scalar", at::scalar_tensor(1.5).to(device_));
  state.tensors.emplace_back("empty", at::empty({0, 3}).to(device_));
  state.tensors.emplace_back("transposed", numbers.to(at::kFloat).to(device_).t());
  state.metadata["epoch"] = "3";
  save_safetensors(state, scratch / "state.safetensors");
  const StateDict read = load_safetensors(scratch / "state.safetensors");
  ASSERT_EQ(read.tensors.size(), state.tensors.size());
  for (const auto& [name, tensor] : state.tensors) {
    ASSERT_NE(read.find(name), nullptr) << name;
    EXPECT_TRUE(read.find(name)->device().is_cpu());
    EXPECT_TRUE(same(*read.find(name), tensor)) << name;
  }
  EXPECT_EQ(read.metadata.at("epoch"), "3");
}

TEST(StateDict, IsWrittenWithChecksumsThatLoadingVerifies) {
  const Scratch scratch;
  const StateDict state{.tensors = {{"a", at::arange(4, at::kFloat)}, {"b", at::arange(3)}},
                        .metadata = {{"format", "pt"}}};
  const std::filesystem::path path = scratch / "w.safetensors";
  save_safetensors(state, path);
  EXPECT_TRUE(SafetensorsFile(path).has_checksums());
  EXPECT_EQ(load_safetensors(path).metadata, state.metadata);
  const std::string whole = read_file(path, 10'000);
  for (std::size_t bit = 0; bit < 8 * whole.size(); ++bit) {
    std::string bytes = whole;
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ 1 << bit % 8);
    std::ofstream(path, std::ios::binary) << bytes;
    EXPECT_THROW(load_safetensors(path), CheckpointError) << bit;
  }
}

TEST(StateDict, GivesLazyLayersTheirShape) {
  const auto source = std::make_shared<LazyNet>(), target = std::make_shared<LazyNet>();
  const at::Tensor image = at::rand({1, 3, 5, 5});
  const at::Tensor output = source->net->forward(image);
  load_state_dict(*target, state_dict(*source));
  EXPECT_EQ(names_of(state_dict(*target)), names_of(state_dict(*source)));
  EXPECT_TRUE(same(target->net->forward(image), output));
}

TEST(StateDict, MisfitsAreListedTogetherAndNothingIsChanged) {
  const auto net = std::make_shared<Net>();
  StateDict state;
  for (const auto& [name, tensor] : state_dict(*net).tensors)
    if (name != "net.1.running_var") state.tensors.emplace_back(name, at::full_like(tensor, 9));
  state.tensors[0].second = at::zeros({2, 5});
  state.tensors.emplace_back("head.bias", at::zeros({1}));
  const at::Tensor bias = net->parameters()[1].detach().clone();
  const std::string text =
      error_text<CheckpointError>([&] { load_state_dict(*net, state, "w.safetensors"); });
  EXPECT_EQ(
      text,
      "w.safetensors: the values do not fit the model: 'net.0.weight' has the shape [2, 5], the model's "
      "is [2, 3], 'net.1.running_var' is missing, 'head.bias' is not in the model; expected: the names and "
      "shapes of the model; nothing was loaded; check the model's options");
  EXPECT_TRUE(same(net->parameters()[1], bias));
}

TEST(StateDict, MissingLazyLayersAreListedToo) {
  const auto source = std::make_shared<LazyNet>(), target = std::make_shared<LazyNet>();
  source->net->forward(at::rand({1, 3, 5, 5}));
  StateDict state = state_dict(*source);
  std::erase_if(state.tensors, [](const auto& item) { return item.first.starts_with("net.2."); });
  const std::string text = error_text<CheckpointError>([&] { load_state_dict(*target, state); });
  EXPECT_NE(text.find("'net.2.weight' is missing"), std::string::npos) << text;
}

TEST(StateDict, LazyLayersStayLazyWhenNothingWasLoaded) {
  const auto source = std::make_shared<LazyNet>(), target = std::make_shared<LazyNet>();
  source->net->forward(at::rand({1, 3, 5, 5}));
  StateDict state = state_dict(*source);
  state.tensors.emplace_back("more", at::zeros({1}));
  EXPECT_THROW(load_state_dict(*target, state), CheckpointError);
  EXPECT_TRUE(state_dict(*target).tensors.empty());
  EXPECT_NO_THROW(target->net->forward(at::rand({1, 1, 7, 7})));  // takes another shape still
}

TEST(StateDict, DtypesThatCannotBeSavedAreNamed) {
  const Scratch scratch;
  const StateDict state{.tensors = {{"z", at::zeros({1}, at::kComplexFloat)}}, .metadata = {}};
  const std::string text =
      error_text<CheckpointError>([&] { save_safetensors(state, scratch / "z.safetensors"); });
  EXPECT_NE(text.find("tensor 'z': its dtype ComplexFloat cannot be saved"), std::string::npos) << text;
  EXPECT_FALSE(std::filesystem::exists(scratch / "z.safetensors"));
}

TEST(StateDict, MissingFileIsNamed) {
  const std::string text = error_text<CheckpointError>([] { load_safetensors("/nowhere/w.safetensors"); });
  EXPECT_NE(text.find("/nowhere/w.safetensors"), std::string::npos) << text;
}

}  // namespace
}  // namespace kindling
