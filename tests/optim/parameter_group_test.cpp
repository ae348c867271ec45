#include "kindling/optim/parameter_group.h"

#include <ATen/Functions.h>
#include <gtest/gtest.h>
#include <torch/nn.h>

#include "kindling/base/error.h"
#include "kindling/optim/sgd.h"
#include "support/scratch.h"

namespace kindling {
namespace {

// first.weight, first.bias, second.weight, second.bias
struct TwoLinear : torch::nn::Module {
  TwoLinear() {
    register_module("first", first);
    register_module("second", second);
  }
  torch::nn::Linear first{2, 3}, second{3, 1};
};

using Names = std::vector<std::string>;

TEST(ParameterGroups, ByNameFollowTheRestAndTheFirstPatternCounts) {
  const TwoLinear model;
  const ParameterGroups groups =
      by_name(model, {{.match = "*.bias", .weight_decay = 0}, {.match = "second.*", .lr = 0.5}});
  ASSERT_EQ(groups.groups().size(), 3u);
  EXPECT_EQ(groups.groups()[0].names, Names{"first.weight"});
  EXPECT_EQ(groups.groups()[0].lr, std::nullopt);
  EXPECT_EQ(groups.groups()[1].names, (Names{"first.bias", "second.bias"}));
  EXPECT_EQ(groups.groups()[1].weight_decay, 0);
  EXPECT_EQ(groups.groups()[2].names, Names{"second.weight"});
  EXPECT_EQ(groups.groups()[2].lr, 0.5);
  EXPECT_TRUE(groups.groups()[2].parameters[0].is_same(model.second->weight));
  EXPECT_EQ(by_name(model, {{.match = "*"}}).groups().size(), 1u) << "no group without parameters";
}

TEST(ParameterGroups, ByNameLearnWithTheirOwnNumbers) {
  const TwoLinear model;
  Sgd sgd(by_name(model, {{.match = "second.*", .lr = 0.5, .weight_decay = 1}}), {.lr = 0.25});
  for (const at::Tensor& parameter : sgd.parameters()) {
    parameter.requires_grad_(false).fill_(1);
    parameter.mutable_grad() = at::ones_like(parameter);
  }
  sgd.step();
  EXPECT_EQ(model.first->bias[0].item<float>(), 0.75F);
  EXPECT_EQ(model.second->bias[0].item<float>(), 0.F) << "1 − 0.5·(1 + 1·1)";
}

TEST(ParameterGroups, ByNameOfGroupsKeepTheNumbersOfTheRest) {
  const TwoLinear model;
  const ParameterGroups groups = by_name(
      ParameterGroups{{.parameters = {model.first->weight, model.first->bias}, .names = {"w", "b"}, .lr = 2}},
      {{.match = "b", .lr = 3}});
  EXPECT_EQ(groups.groups()[0].lr, 2);
  EXPECT_EQ(groups.groups()[1].names, Names{"b"});
}

// first.weight is second.weight, too.
struct TiedLinear : torch::nn::Module {
  TiedLinear() {
    register_module("first", first);
    second->register_parameter("weight", first->weight);
    register_module("second", second);
  }
  torch::nn::Linear first{2, 3};
  std::shared_ptr<torch::nn::Module> second = std::make_shared<torch::nn::Module>();
};

TEST(ParameterGroups, ByNameKnowsEveryNameOfATiedParameter) {
  const TiedLinear model;
  for (const char* pattern : {"first.weight", "second.weight", "second.*"}) {
    const ParameterGroups groups = by_name(model, {{.match = pattern, .lr = 0.5}});
    ASSERT_EQ(groups.groups().size(), 2U) << pattern;
    EXPECT_EQ(groups.groups()[0].names, Names{"first.bias"});
    EXPECT_EQ(groups.groups()[1].names, Names{"first.weight"}) << "once, by its first name";
    EXPECT_TRUE(groups.groups()[1].parameters[0].is_same(model.first->weight));
  }
  EXPECT_EQ(
      error_text<ConfigError>([&] {
        by_name(model, {{.match = "first.weight"}, {.match = "second.weight"}});
      }),
      "parameter group 'second.weight': earlier groups contain all parameters that it matches; expected: "
      "the more specific pattern first");
}

TEST(ParameterGroups, ByNameRejectPatternsWithoutAMatch) {
  const TwoLinear model;
  EXPECT_EQ(
      error_text<ConfigError>([&] { by_name(model, {{.match = "frist.*"}}); }),
      "parameter group 'frist.*': 'frist.*' matches no name; expected: one of first.weight, first.bias, "
      "second.weight, second.bias; did you mean 'first.*'?");
  EXPECT_EQ(error_text<ConfigError>([&] {
              by_name(model, {{.match = "second.*"}, {.match = "second.bias"}});
            }),
            "parameter group 'second.bias': earlier groups contain all parameters that it matches; expected: "
            "the more specific pattern first");
  EXPECT_EQ(error_text<ConfigError>([&] { by_name(model, {{.match = "*", .lr = -1}}); }),
            "parameter group '*': lr is -1.0; expected: a number >= 0");
  EXPECT_NE(error_text<ConfigError>([&] {
              by_name({model.first->weight}, {{.match = "*"}});
            }).find("the parameters have no names"),
            std::string::npos);
}

}  // namespace
}  // namespace kindling
