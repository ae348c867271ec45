#include "cli/run/fit_doubts.h"

#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "kindling/models/mlp.h"
#include "kindling/models/mlp_regressor.h"
#include "training/loop/small_fit.h"

namespace kindling {
namespace {

std::vector<std::string> doubts_of(const Metrics& metrics, const Module& model, const at::Tensor& labels,
                                   FitStatus status = FitStatus::finished) {
  const at::Tensor inputs = at::zeros({labels.size(0), 2});
  TensorData data({inputs, labels}, {inputs, labels}, {});
  ConfigTables config;
  config.data.name.name = "csv";
  return doubts_about({.status = status, .metrics = metrics}, config, model, data);
}

bool begins(const std::vector<std::string>& doubts, const std::string& text) {
  return doubts.size() == 1 && doubts[0].starts_with(text);
}

TEST(FitDoubts, ComparesWithTheMeanOfTheTargets) {
  const MlpRegressor model;
  const at::Tensor labels = at::tensor({1.f, 3.f, 5.f, 7.f}).unsqueeze(1);  // variance 5
  EXPECT_TRUE(
      begins(doubts_of({{"val_loss", 5.1}}, model, labels), "val_loss is 5.1, above the 5 of predicting"));
  EXPECT_TRUE(doubts_of({{"val_loss", 4.9}}, model, labels).empty());
  EXPECT_TRUE(doubts_of({{"val_loss", 5.1}}, model, labels, FitStatus::stopped).empty());
  EXPECT_TRUE(begins(doubts_of({{"val_loss", std::numeric_limits<double>::infinity()}}, model, labels),
                     "val_loss is inf: the outputs are too large"));
}

TEST(FitDoubts, ComparesWithTheMostFrequentClass) {
  const Mlp model;
  const at::Tensor labels = at::tensor({1, 1, 1, 0, -100}, at::kLong);
  EXPECT_TRUE(
      begins(doubts_of({{"val_acc", 0.7}}, model, labels), "val_acc is 0.7, below the 0.75 of predicting"));
  EXPECT_TRUE(doubts_of({{"val_acc", 0.75}}, model, labels).empty());
}

}  // namespace
}  // namespace kindling
