#include "kindling/nn/regressor.h"

#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "kindling/base/error.h"
#include "kindling/metrics/mean_error.h"
#include "kindling/models/mlp_regressor.h"
#include "kindling/optim/sgd.h"
#include "kindling/training/trainer.h"
#include "support/device_under_test.h"
#include "support/scratch.h"
#include "support/tensor_matchers.h"
#include "training/loop/small_fit.h"

namespace kindling {
namespace {

constexpr double kMissingTarget = std::numeric_limits<double>::quiet_NaN();

class Regressors : public OnDevice {
 protected:
  static std::shared_ptr<MlpRegressor> model(bool scale_target = false) {
    return std::make_shared<MlpRegressor>(MlpRegressorOptions{
        .hidden = {}, .num_targets = 3, .scale_target = scale_target, .ignore_missing = true});
  }
  // A number of four is missing.
  at::Tensor with_gaps(const at::Tensor& labels) const {
    const at::Tensor number = at::arange(labels.numel()).view(labels.sizes()).to(labels.device());
    return labels.masked_fill(number.remainder(4).eq(0), kMissingTarget);
  }
};
KINDLING_RUN_ON_TRAINER_DEVICES(Regressors);

TEST_P(Regressors, TargetsThatAreMissingDoNotCount) {
  for (const bool is_scaled : {false, true}) {
    const auto regressor = model(is_scaled);
    const at::Tensor labels = with_gaps(at::randn({5, 3}).mul_(7).add_(100)).to(device_);
    if (is_scaled) regressor->fit_target_scale(labels.cpu());
    regressor->to(device_);
    at::Tensor outputs = at::randn({5, 3}, device_).requires_grad_();
    const WeightedLoss loss = regressor->weighted_loss(outputs, labels);
    loss.loss.backward();
    const at::Tensor is_missing = labels.isnan(), difference = (outputs - labels).detach();
    EXPECT_EQ(loss.weight.item<double>(), 11);
    EXPECT_TRUE(close(loss.loss.detach(), difference.masked_fill(is_missing, 0).square().sum() / 11, 1e-6));
    const at::Tensor std = is_scaled ? regressor->named_buffers()["target_std"] : at::ones({3}, device_);
    const at::Tensor expected = (difference * 2 / 11 / std.square()).masked_fill(is_missing, 0);
    EXPECT_TRUE(close(outputs.grad(), expected, 1e-6)) << is_scaled;
  }
}

TEST_P(Regressors, MeansOfLossesAreOverAllNumbersThatCount) {
  const at::Tensor x = at::randn({64, 4}), y = at::randn({64, 3});
  at::Tensor gaps = y.clone();
  gaps.narrow(0, 0, 16).narrow(1, 1, 2).fill_(kMissingTarget);  // of the first batch of the validation
  gaps.narrow(0, 16, 15).fill_(kMissingTarget);                 // of all but one sample of the second
  const auto regressor = model();
  regressor->add_metric("mse", std::make_shared<MeanError>(MeanErrorOptions{.ignore_missing = true}));
  Trainer trainer({.max_epochs = 1, .num_gpus = num_gpus_wanted()});
  TensorData data({x, y}, {x, gaps}, {.batch_size = 16});
  const FitResult result = trainer.fit(regressor, data);
  const at::NoGradGuard no_grad;
  const at::Tensor difference = regressor->forward(x.to(device_)).cpu() - gaps;
  const double expected =
      difference.masked_fill(gaps.isnan(), 0).square().sum().item<double>() / (16 + 3 + 32 * 3);
  EXPECT_NEAR(result.metrics.at("val_loss"), expected, 1e-5);
  EXPECT_NEAR(result.metrics.at("val_mse"), expected, 1e-5);
}

TEST_P(Regressors, StepsWithoutTargetsAreSkipped) {
  const auto regressor = model();
  regressor->forward(at::zeros({1, 4}));
  const std::vector<at::Tensor> before = regressor->parameters();
  std::vector<at::Tensor> copies;
  for (const at::Tensor& parameter : before) copies.push_back(parameter.detach().clone());
  Trainer trainer(
      {.max_epochs = 1, .num_gpus = num_gpus_wanted(), .optimizer = [](ParameterGroups parameters) {
         return std::make_unique<Sgd>(std::move(parameters), SgdOptions{.lr = 0.1, .weight_decay = 0.5});
       }});
  TensorData data({at::randn({8, 4}), at::full({8, 3}, kMissingTarget)}, {}, {.batch_size = 8});
  trainer.fit(regressor, data);
  if (!device_.is_cpu()) return;  // an update with gradients of 0, because the host does not know the weight
  for (std::size_t i = 0; i < copies.size(); ++i)
    EXPECT_TRUE(same(regressor->parameters()[i].detach().cpu(), copies[i])) << i;
}

TEST(TargetScale, IsTheSameFromParts) {
  const at::Tensor fields = at::randn({40, 2, 5, 6}).mul_(3).add_(1000);
  fields.select(1, 1).narrow(1, 0, 2).fill_(kMissingTarget);  // land
  fields.narrow(0, 0, 7).select(1, 0).fill_(kMissingTarget);  // a whole part
  const auto make = [] {
    return std::make_shared<MlpRegressor>(
        MlpRegressorOptions{.num_targets = 2, .scale_target = true, .ignore_missing = true});
  };
  const auto whole = make(), in_parts = make();
  whole->fit_target_scale(fields);
  std::int64_t first = 0;
  in_parts->fit_target_scale([&] {
    const std::int64_t begin = std::exchange(first, std::min<std::int64_t>(first + 7, 40));
    return begin == 40 ? at::Tensor() : fields.narrow(0, begin, first - begin);
  });
  for (std::int64_t channel = 0; channel < 2; ++channel) {
    const at::Tensor values = fields.select(1, channel).to(at::kDouble),
                     there = values.masked_select(values.isnan().logical_not());
    for (const auto& model : {whole, in_parts}) {
      const auto buffers = model->named_buffers();
      EXPECT_FLOAT_EQ(buffers["target_mean"][channel].item<float>(), there.mean().item<float>());
      EXPECT_FLOAT_EQ(buffers["target_std"][channel].item<float>(),
                      there.std(/*unbiased=*/false).item<float>());
    }
  }
}

TEST(TargetScale, RefusesATargetWithoutNumbers) {
  MlpRegressor model({.num_targets = 2, .scale_target = true, .ignore_missing = true});
  const at::Tensor labels = at::ones({4, 2});
  labels.select(1, 1).fill_(kMissingTarget);
  EXPECT_EQ(
      error_text<DataError>([&] { model.fit_target_scale(labels); }),
      "MlpRegressor::fit_target_scale: target 1 is infinite, or has no values; expected: finite numbers");
  EXPECT_EQ(
      error_text<DataError>([&] {
        model.fit_target_scale(at::ones({4, 3}));
      }),
      "MlpRegressor::fit_target_scale: the labels are Float [4, 3]; expected: a shape of [samples, 2, …]");
}

}  // namespace
}  // namespace kindling
