#include "kindling/formats/torch_optimizer.h"

#include <gtest/gtest.h>

#include <cstring>
#include <iostream>

#include "kindling/base/error.h"
#include "kindling/base/file.h"
#include "support/places_tried.h"
#include "support/scratch.h"
#include "support/torch_bytes.h"

namespace kindling {
namespace {

using torch_bytes::dict;
using torch_bytes::integer;
using torch_bytes::pickled_tensor;
using torch_bytes::torch_file_of;

const std::filesystem::path kOptimizerFixtures = KINDLING_FIXTURES;

// The contents of a file as one text.
std::string everything_in(const TorchOptimizerFile& optimizer) {
  std::string all;
  for (const TorchOptimizerGroup& group : optimizer.groups) {
    for (const std::int64_t number : group.parameters) all += std::to_string(number) + " ";
    for (const auto& [name, value] : group.options) all += name + "#" + std::to_string(value.index()) + " ";
  }
  for (const TorchOptimizerEntry& entry : optimizer.state) {
    all += "\n" + std::to_string(entry.parameter) + "." + entry.name + "=";
    if (entry.number) {
      all += std::to_string(*entry.number);
      continue;
    }
    const TorchTensor& tensor = optimizer.values.tensors()[entry.tensor];
    std::string values(tensor.size_bytes(), '\0');
    optimizer.values.read(tensor, values.data());
    all += std::string(name_of(tensor.type)) + ":" + values;
  }
  return all;
}

std::string refusal_of_optimizer(const std::string& body, const std::string& key = "") {
  return error_text<CheckpointError>(
      [&] { everything_in(torch_optimizer_of_bytes(torch_file_of(body), "x.pt", key)); });
}

// {"state": {…}, "param_groups": [{…, "params": [0, 1]}]}
std::string optimizer_of(const std::string& state, const std::string& group = "") {
  using torch_bytes::text;
  return "}(" + text("state") + state + text("param_groups") + "]}(" + group + text("params") + "](" +
         integer(0) + integer(1) + "euau";
}
std::string number_key(std::int64_t key, const std::string& value) {
  return "}" + integer(key) + value + "s";
}

class PythonsOptimizer : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Versions, PythonsOptimizer,
                         testing::Values("torch_1.13.1", "torch_2.4.1", "torch_2.13.0"));

TEST_P(PythonsOptimizer, IsReadUnderItsKey) {
  const TorchOptimizerFile adamw =
      open_torch_optimizer(kOptimizerFixtures / GetParam() / "nested.pt", "optimizer");
  ASSERT_EQ(adamw.groups.size(), 1u);
  EXPECT_EQ(adamw.groups[0].parameters, (std::vector<std::int64_t>{0, 1}));
  const TorchOptions& options = adamw.groups[0].options;
  EXPECT_EQ(options.at("lr"), TorchOptions::mapped_type(1e-3));
  EXPECT_EQ(options.at("betas"), TorchOptions::mapped_type(std::vector{0.9, 0.999}));
  EXPECT_EQ(options.at("amsgrad"), TorchOptions::mapped_type(true));
  EXPECT_FALSE(options.contains("params"));
  EXPECT_FALSE(options.contains("foreach"));  // None
  std::vector<std::string> names;
  for (const TorchOptimizerEntry& entry : adamw.state) {
    names.push_back(std::to_string(entry.parameter) + "." + entry.name);
    EXPECT_EQ(adamw.values.tensors()[entry.tensor].name, names.back());
  }
  EXPECT_EQ(names, (std::vector<std::string>{"0.step", "0.exp_avg", "0.exp_avg_sq", "0.max_exp_avg_sq",
                                             "1.step", "1.exp_avg", "1.exp_avg_sq", "1.max_exp_avg_sq"}));
  // The gradient of sum(w·[1, 1] + b) is one, so the first mean is 1 − 0.9.
  float mean[4], step = 0;
  adamw.values.read(*adamw.values.find("0.exp_avg"), mean);
  adamw.values.read(*adamw.values.find("1.step"), &step);
  EXPECT_FLOAT_EQ(mean[3], 0.1F);
  EXPECT_EQ(step, 1);
}

TEST(TorchOptimizerFile, IsRefusedOrUnchangedAfterAnyFlippedBit) {
  const std::string whole = read_file(kOptimizerFixtures / "torch_2.4.1" / "nested.pt", 100'000);
  const std::string wanted = everything_in(torch_optimizer_of_bytes(whole, "x.pt", "optimizer"));
  int refused = 0, equal = 0;
  for (std::size_t i = 0; i < whole.size() * 8; i += kPlaceStride) {
    std::string flipped = whole;
    flipped[i / 8] = static_cast<char>(flipped[i / 8] ^ 1 << i % 8);
    try {
      EXPECT_EQ(everything_in(torch_optimizer_of_bytes(flipped, "x.pt", "optimizer")), wanted) << "bit " << i;
      ++equal;
    } catch (const CheckpointError&) {
      ++refused;
    }
    if (HasFailure()) return;
  }
  std::cout << refused + equal << " flips: " << refused << " refused, " << equal << " without effect\n";
  EXPECT_GT(refused, equal);
}

TEST(TorchOptimizerFile, ReadsNumbersAndSkipsNone) {
  // The format of PyTorch 1.11 and before: steps are numbers, and a momentum that has not started is None.
  const std::string body = optimizer_of("}(" + integer(0) + "}(" + torch_bytes::text("step") + "K\7" +
                                            torch_bytes::text("exp_avg") + pickled_tensor() + "u" +
                                            integer(1) + dict("momentum_buffer", "N") + "u",
                                        torch_bytes::text("foreach") + "N" + torch_bytes::text("lr") + "K\1" +
                                            torch_bytes::text("names") + "](" + torch_bytes::text("a") + "e");
  const TorchOptimizerFile optimizer = torch_optimizer_of_bytes(torch_file_of(body), "x.pt");
  ASSERT_EQ(optimizer.state.size(), 2u);
  EXPECT_EQ(optimizer.state[0].name, "step");
  EXPECT_EQ(optimizer.state[0].number, 7.0);
  EXPECT_EQ(optimizer.values.tensors().at(optimizer.state[1].tensor).shape,
            (std::vector<std::int64_t>{2, 3}));
  EXPECT_EQ(optimizer.groups[0].options, (TorchOptions{{"lr", std::int64_t{1}}}));
}

TEST(TorchOptimizerFile, RefusesFilesThatAreNotOptimizers) {
  EXPECT_EQ(refusal_of_optimizer(dict("w", pickled_tensor())),
            "x.pt: the file's object is not an optimizer's state dict; expected: a dict of \"state\" and "
            "\"param_groups\"; save the state of a torch.optim optimizer in Python with "
            "torch.save(optimizer.state_dict(), path)");
  EXPECT_NE(refusal_of_optimizer("K\1").find("the file's object is not an optimizer's state dict"),
            std::string::npos);
  EXPECT_EQ(
      refusal_of_optimizer(dict("opt", optimizer_of("}"))),
      "x.pt: the file's object is not an optimizer's state dict; expected: one of the keys of optimizers: "
      "\"opt\"; pass the key");
  EXPECT_NE(refusal_of_optimizer(dict("opt", optimizer_of("}")), "o")
                .find("no optimizer's state dict under the key \"o\""),
            std::string::npos);
  EXPECT_EQ(refusal_of_optimizer(dict("opt", optimizer_of("}")), "opt"), "(no error)");
}

TEST(TorchOptimizerFile, RefusesInvalidState) {
  const auto found = [&](const std::string& state, const std::string& group = "") {
    const std::string text = refusal_of_optimizer(optimizer_of(state, group));
    return text.substr(0, text.find("; save "));
  };
  EXPECT_EQ(found(number_key(2, "}")), "x.pt, \"state\": it has a key that is not a parameter's number");
  EXPECT_EQ(found(dict("weight", "}")), "x.pt, \"state\": it has a key that is not a parameter's number");
  EXPECT_EQ(found(number_key(0, pickled_tensor())),
            "x.pt, parameter 0: its state is a tensor; expected: a dict");
  EXPECT_EQ(found(number_key(1, dict("old_dirs", "}"))),
            "x.pt, parameter 1: its state \"old_dirs\" is a dict; expected: a tensor, a number or a list of "
            "tensors");
  EXPECT_EQ(found("}(" + integer(0) + "}" + integer(0) + "}u"), "x.pt, parameter 0: its state appears twice");
  EXPECT_EQ(found("}", torch_bytes::text("param_names") + "](" + torch_bytes::text("w") + "e"),
            "x.pt, group 0: \"param_names\" is not a list of a text for each of \"params\"");
  EXPECT_EQ(found("}", torch_bytes::text("params") + "]"), "(no error)");             // the last one counts
  EXPECT_EQ(found("}", torch_bytes::text("mask") + pickled_tensor()), "(no error)");  // it is not an option
  const std::string twice = "}(" + torch_bytes::text("state") + "}" + torch_bytes::text("param_groups") +
                            "](" + dict("params", "](" + integer(0) + integer(0) + "e") + "eu";
  EXPECT_NE(refusal_of_optimizer(twice).find("group 0: \"params\" are not distinct numbers"),
            std::string::npos);
  EXPECT_NE(refusal_of_optimizer("}(" + torch_bytes::text("state") + "}" + torch_bytes::text("param_groups") +
                                 "](}eu")
                .find("group 0: it has no list \"params\""),
            std::string::npos);
  torch_bytes::FakeTensor outside;
  outside.offset = 1;
  EXPECT_NE(found(number_key(0, dict("exp_avg", pickled_tensor(outside)))).find("reach outside its storage"),
            std::string::npos);
}

TEST(TorchOptimizerFile, RoundTrips) {
  const Scratch scratch;
  const float values[] = {1, 2, 3};
  const TensorToWrite vector{"exp_avg", TensorType::float32, {3}, values, 12},
      count{"step", TensorType::float32, {}, values, 4};
  const TorchOptions options{{"amsgrad", true},
                             {"betas", std::vector{0.5, -0.25}},
                             {"eps", 1e-300},
                             {"max_iter", std::int64_t{-20}},
                             {"nesterov", false}};
  const std::vector<TorchOptimizerGroup> groups{{{0, 1}, options}, {{2}, {}}, {{}, {{"lr", 1.0}}}};
  write_torch_optimizer(scratch / "x.pt", groups, {{0, {vector, count}}, {2, {vector}}});
  const TorchOptimizerFile read = open_torch_optimizer(scratch / "x.pt");
  ASSERT_EQ(read.groups.size(), 3u);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(read.groups[i].parameters, groups[i].parameters);
    EXPECT_EQ(read.groups[i].options, groups[i].options);
  }
  ASSERT_EQ(read.state.size(), 3u);
  EXPECT_EQ(read.state[2].parameter, 2);
  float again[3];
  read.values.read(*read.values.find("2.exp_avg"), again);
  EXPECT_EQ(std::memcmp(again, values, sizeof values), 0);
  EXPECT_NE(read.values.find("2.exp_avg")->storage, read.values.find("0.exp_avg")->storage);
  EXPECT_THROW(write_torch_optimizer(scratch / "x.pt", groups, {{0, {vector, vector}}}), CheckpointError);
}

}  // namespace
}  // namespace kindling
