#include "kindling/tensors/state_dict.h"

#include <gtest/gtest.h>
#include <torch/nn.h>

#include <fstream>

#include "kindling/base/error.h"
#include "kindling/base/file.h"
#include "kindling/base/log.h"
#include "kindling/formats/safetensors.h"
#include "kindling/nn/lazy_conv2d.h"
#include "kindling/nn/lazy_linear.h"
#include "kindling/tensors/move.h"
#include "kindling/tensors/state_comparison.h"
#include "support/device_under_test.h"
#include "support/scratch.h"
#include "support/tensor_matchers.h"
#include "tensors/state_tensors.h"

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
  EXPECT_EQ(text,
            "w.safetensors: the values do not fit the model; expected: the names and shapes of the model; "
            "nothing was "
            "loaded; check the model's options\n"
            "  'net.0.weight' has the shape [2, 5], the model's is [2, 3]\n"
            "  'net.1.running_var' is missing\n"
            "  'head.bias' is not in the model");
  EXPECT_TRUE(same(net->parameters()[1], bias));
}

TEST(StateDict, ListsTheFirstFiveOfManyMisfits) {
  StateDict state;
  for (int i = 0; i < 7; ++i) state.tensors.emplace_back("x." + std::to_string(i), at::zeros({1}));
  torch::nn::Linear target(3, 2);  // its weight and bias are missing, too
  const std::string text = error_text<CheckpointError>([&] { load_state_dict(*target, state, "w.pt"); });
  EXPECT_TRUE(
      text.ends_with("\n  'weight' is missing\n  'bias' is missing\n  'x.0' is not in the model\n"
                     "  'x.1' is not in the model\n  'x.2' is not in the model\n  +4 more"))
      << text;
}

TEST(StateDict, AMisfitOfACheckpointNamesTheFunctionThatLoadsIt) {
  const auto net = std::make_shared<Net>();
  StateDict state;
  for (const auto& [name, tensor] : state_dict(*net).tensors)
    state.tensors.emplace_back("model." + name, tensor);
  const std::string text =
      error_text<CheckpointError>([&] { load_state_dict(*net, state, "step-5.safetensors"); });
  EXPECT_NE(text.find("call load_validated_weights() for a checkpoint of a Trainer"), std::string::npos)
      << text;
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
  const StateDict state{.tensors = {{"z", at::zeros({1}, at::kComplexDouble)}}, .metadata = {}};
  const std::string text =
      error_text<CheckpointError>([&] { save_safetensors(state, scratch / "z.safetensors"); });
  EXPECT_NE(text.find("tensor 'z': its dtype ComplexDouble cannot be saved"), std::string::npos) << text;
  EXPECT_FALSE(std::filesystem::exists(scratch / "z.safetensors"));
}

// Bits of each type as LibTorch makes them: 1 and −2, or 1 and 2 of what has no sign.
TEST(StateDict, ComesBackInEveryTypeOfSafetensors) {
  const Scratch scratch;
  StateDict state;
  for (const at::ScalarType type :
       {at::kUInt16, at::kUInt32, at::kUInt64, at::kFloat8_e4m3fn, at::kFloat8_e4m3fnuz, at::kFloat8_e5m2,
        at::kFloat8_e5m2fnuz, at::kFloat8_e8m0fnu, at::kComplexFloat}) {
    const bool has_sign = !at::isIntegralType(type, false) && type != at::kFloat8_e8m0fnu;
    state.tensors.emplace_back(c10::toString(type), at::tensor({1.0, has_sign ? -2.0 : 2.0}).to(type));
  }
  save_safetensors(state, scratch / "w.safetensors");
  const StateDict loaded = load_safetensors(scratch / "w.safetensors");
  for (const auto& [name, tensor] : state.tensors) {
    const at::Tensor* found = loaded.find(name);
    ASSERT_NE(found, nullptr) << name;
    EXPECT_EQ(found->scalar_type(), tensor.scalar_type()) << name;
    EXPECT_TRUE(at::equal(found->to(at::kComplexDouble), tensor.to(at::kComplexDouble))) << name;
  }
  EXPECT_TRUE(compare(state, loaded, {}).is_equal());
}

TEST(StateDict, IsReadWithoutTensorsOfUnknownTypes) {
  const Scratch scratch;
  const std::string header =
      R"({"a":{"dtype":"F4","shape":[4],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[1],"data_offsets":[2,3]}})";
  std::string bytes(8, '\0');
  bytes[0] = static_cast<char>(header.size());
  write_file_atomically(scratch / "w.safetensors", bytes + header + "xy\x07");
  std::vector<std::string> messages;
  set_log_observer([&](LogLevel, const std::string& message) { messages.push_back(message); });
  const StateDict state = load_safetensors(scratch / "w.safetensors");
  set_log_observer({});
  ASSERT_EQ(state.tensors.size(), 1u);
  EXPECT_EQ(state.find("b")->item<int>(), 7);
  ASSERT_EQ(messages.size(), 1u);
  EXPECT_NE(messages[0].find("skipped tensors of types that LibTorch does not have: \"a\" (F4)"),
            std::string::npos)
      << messages[0];
}

// Contiguous tensors whose bytes are not their values: conj() and the imaginary part of a conjugate set a
// bit.
StateDict lazy_views() {
  const at::Tensor real = at::arange(4, at::kFloat), complex = at::complex(real, real + 1);
  return {.tensors = {{"conjugate", at::conj(complex)},
                      {"negative", at::_neg_view(real)},
                      {"imaginary", at::imag(at::conj(complex))}},
          .metadata = {}};
}

void expect_values_of_lazy_views(const StateDict& state, const std::string& what) {
  const at::Tensor real = at::arange(4, at::kFloat);
  ASSERT_EQ(state.tensors.size(), 3u) << what;
  EXPECT_TRUE(state.find("conjugate")->equal(at::complex(real, -1 - real))) << what;
  EXPECT_TRUE(state.find("negative")->equal(-real)) << what;
  EXPECT_TRUE(state.find("imaginary")->equal(-1 - real)) << what;
}

TEST(StateDict, HasTheValuesOfLazyViewsInItsFiles) {
  const Scratch scratch;
  save_safetensors(lazy_views(), scratch / "w.safetensors");
  expect_values_of_lazy_views(load_safetensors(scratch / "w.safetensors"), "safetensors");
  save_torch(lazy_views(), scratch / "w.pt");
  expect_values_of_lazy_views(load_state_file(scratch / "w.pt"), "torch.save");
  expect_values_of_lazy_views(state_of_bytes(state_bytes(lazy_views()), ""), "bytes");
  StateCopy copy;
  for (int i = 0; i < 2; ++i) {  // the second time into memory that it has
    copy.take(lazy_views());
    expect_values_of_lazy_views(copy.state(), "copy");
  }
}

double anonymous_mebibytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("RssAnon:")) return std::stod(line.substr(8)) / 1024;
  return 0;
}

// 32 MiB, as Python writes them.
TEST(StateDict, MapsALargeFileWithoutChecksums) {
  const Scratch scratch;
  const std::filesystem::path file = scratch / "w.safetensors";
  const at::Tensor values = at::arange(1 << 22, at::kFloat);
  const auto write = [&](const at::Tensor& tensor) {
    const TensorToWrite entries[] = {
        {"a", TensorType::float32, {1 << 22}, tensor.const_data_ptr(), tensor.nbytes()},
        {"b", TensorType::float32, {1 << 11, 1 << 11}, tensor.const_data_ptr(), tensor.nbytes()}};
    write_safetensors(file, entries, {});
  };
  write(values);
  const double before = anonymous_mebibytes();
  const StateDict state = load_safetensors(file), other = load_state_file(file);
  EXPECT_TRUE(state.find("a")->equal(values));
  EXPECT_TRUE(state.find("b")->equal(values.view({1 << 11, 1 << 11})));
  EXPECT_LT(anonymous_mebibytes() - before, 8);  // a copy takes 32
  state.find("a")->fill_(1);
  EXPECT_TRUE(other.find("a")->equal(values));  // private, and not written to the file
  EXPECT_TRUE(load_state_file(file).find("a")->equal(values));
  write(-values);
  EXPECT_TRUE(other.find("b")->equal(values.view({1 << 11, 1 << 11})));  // of the file that was replaced
  EXPECT_TRUE(load_safetensors(file).find("a")->equal(-values));
}

TEST(StateDict, CopiesTensorsThatAreNotAligned) {
  const Scratch scratch;
  const std::string header = R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                             R"("b":{"dtype":"F32","shape":[4194304],"data_offsets":[1,16777217]}})";
  std::string bytes(8, '\0');
  bytes[0] = static_cast<char>(header.size());
  bytes += header + "x" + std::string(std::size_t{1} << 24, '\0');
  write_file_atomically(scratch / "w.safetensors", bytes);
  const at::Tensor b = *load_safetensors(scratch / "w.safetensors").find("b");
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(b.const_data_ptr()) % 4, 0u);
  EXPECT_EQ(b.count_nonzero().item<std::int64_t>(), 0);
}

TEST(LoadWeights, WritesTheValuesOfLazyViews) {
  struct Views : torch::nn::Module {
    Views() { negative = register_buffer("negative", at::_neg_view(at::zeros({4}))); }
    at::Tensor negative;
  };
  const Scratch scratch;
  save_safetensors({.tensors = {{"negative", at::arange(4, at::kFloat)}}, .metadata = {}},
                   scratch / "w.safetensors");
  Views module;
  load_weights(module, scratch / "w.safetensors");
  EXPECT_TRUE(module.negative.equal(at::arange(4, at::kFloat)));
}

// A copy would drop the imaginary part.
TEST(StateDict, OfComplexNumbersDoesNotFitRealParameters) {
  torch::nn::Linear layer(2, 2);
  StateDict state = state_dict(*layer);
  for (auto& [name, tensor] : state.tensors) tensor = tensor.detach().to(at::kComplexFloat);
  const std::string text = error_text<CheckpointError>([&] { load_state_dict(*layer, state); });
  EXPECT_NE(text.find("'weight' has the shape ComplexFloat [2, 2], the model's is Float [2, 2]"),
            std::string::npos)
      << text;
}

TEST(StateDict, MissingFileIsNamed) {
  const std::string text = error_text<CheckpointError>([] { load_safetensors("/nowhere/w.safetensors"); });
  EXPECT_NE(text.find("/nowhere/w.safetensors"), std::string::npos) << text;
}

}  // namespace
}  // namespace kindling
