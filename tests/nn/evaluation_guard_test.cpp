#include "kindling/nn/evaluation_guard.h"

#include <gtest/gtest.h>
#include <torch/nn.h>

#include <stdexcept>

namespace kindling {
namespace {

// A model with a layer that is kept in evaluation mode, and one inside of a part.
struct Parts : torch::nn::Module {
  Parts() {
    register_module("norm", norm);
    part->push_back(torch::nn::Dropout());
    register_module("part", part);
    norm->eval();
  }
  std::vector<bool> modes() const {
    return {is_training(), norm->is_training(), part->is_training(), part->ptr(0)->is_training()};
  }
  torch::nn::BatchNorm1d norm{2};
  torch::nn::Sequential part;
};

const std::vector<bool> kAllEvaluate{false, false, false, false};

TEST(EvaluationGuard, RestoresTheModeOfEveryLayer) {
  Parts model;
  {
    const EvaluationGuard guard(model);
    EXPECT_EQ(model.modes(), kAllEvaluate);
    EXPECT_FALSE(at::GradMode::is_enabled());
  }
  EXPECT_EQ(model.modes(), (std::vector<bool>{true, false, true, true}));
  EXPECT_TRUE(at::GradMode::is_enabled());
}

TEST(EvaluationGuard, RestoresATrainingLayerInAnEvaluatingModel) {
  Parts model;
  model.eval();
  model.part->ptr(0)->train();
  { const EvaluationGuard guard(model); }
  EXPECT_EQ(model.modes(), (std::vector<bool>{false, false, false, true}));
}

TEST(EvaluationGuard, MayBeNested) {
  Parts model;
  {
    const EvaluationGuard outer(model);
    { const EvaluationGuard inner(model); }
    EXPECT_EQ(model.modes(), kAllEvaluate);
    EXPECT_FALSE(at::GradMode::is_enabled());
  }
  EXPECT_EQ(model.modes(), (std::vector<bool>{true, false, true, true}));
  EXPECT_TRUE(at::GradMode::is_enabled());
}

TEST(EvaluationGuard, RestoresAfterAnException) {
  Parts model;
  const auto fail = [&] {
    const EvaluationGuard outer(model);
    const EvaluationGuard inner(model);
    throw std::logic_error("enough");
  };
  EXPECT_THROW(fail(), std::logic_error);
  EXPECT_EQ(model.modes(), (std::vector<bool>{true, false, true, true}));
  EXPECT_TRUE(at::GradMode::is_enabled());
}

}  // namespace
}  // namespace kindling
