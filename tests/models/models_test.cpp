#include <ATen/Context.h>
#include <gtest/gtest.h>
#include <torch/nn.h>

#include <cmath>

#include "kindling/base/error.h"
#include "kindling/models/lenet.h"
#include "kindling/models/linear_regression.h"
#include "kindling/models/mlp.h"
#include "kindling/models/mlp_regressor.h"
#include "kindling/models/small_cnn.h"
#include "kindling/models/softmax_regression.h"
#include "kindling/nn/lazy_linear.h"
#include "kindling/nn/sequential_net.h"
#include "kindling/training/trainer.h"
#include "support/device_under_test.h"
#include "support/scratch.h"
#include "support/tensor_matchers.h"

namespace kindling {
namespace {

class Models : public OnDevice {
 protected:
  // The shapes by name after a batch on the device under test has been through the model.
  std::map<std::string, std::vector<std::int64_t>> shapes(Module& model, at::IntArrayRef input,
                                                          at::IntArrayRef output) const {
    const at::Tensor outputs = model.forward(at::rand(input).to(device_));
    EXPECT_EQ(outputs.sizes(), output);
    EXPECT_EQ(outputs.device(), device_);
    std::map<std::string, std::vector<std::int64_t>> shapes;
    for (const auto& item : model.named_parameters()) {
      EXPECT_EQ(item.value().device(), device_) << item.key();
      shapes[item.key()] = item.value().sizes().vec();
    }
    return shapes;
  }
};
KINDLING_RUN_ON_DEVICES(Models);

using Shapes = std::map<std::string, std::vector<std::int64_t>>;

TEST_P(Models, LinearRegression) {
  EXPECT_EQ(shapes(*std::make_shared<LinearRegression>(), {5, 2}, {5, 1}),
            (Shapes{{"net.0.weight", {1, 2}}, {"net.0.bias", {1}}}));
}

TEST_P(Models, SoftmaxRegression) {
  EXPECT_EQ(shapes(*std::make_shared<SoftmaxRegression>(), {5, 1, 28, 28}, {5, 10}),
            (Shapes{{"net.1.weight", {10, 784}}, {"net.1.bias", {10}}}));
}

TEST_P(Models, Mlp) {
  const auto mlp = std::make_shared<Mlp>(MlpOptions{.hidden = {32, 16}, .num_classes = 3});
  EXPECT_EQ(shapes(*mlp, {5, 1, 8, 8}, {5, 3}), (Shapes{{"net.1.weight", {32, 64}},
                                                        {"net.1.bias", {32}},
                                                        {"net.3.weight", {16, 32}},
                                                        {"net.3.bias", {16}},
                                                        {"net.5.weight", {3, 16}},
                                                        {"net.5.bias", {3}}}));
}

TEST_P(Models, MlpRegressor) {
  const auto model =
      std::make_shared<MlpRegressor>(MlpRegressorOptions{.hidden = {32, 16}, .num_targets = 3});
  const Shapes wanted{{"net.1.weight", {32, 6}}, {"net.1.bias", {32}},      {"net.3.weight", {16, 32}},
                      {"net.3.bias", {16}},      {"net.5.weight", {3, 16}}, {"net.5.bias", {3}}};
  EXPECT_EQ(shapes(*model, {5, 6}, {5, 3}), wanted);
}

TEST_P(Models, MlpRegressorWithDropoutHasALayerForIt) {
  const auto model = std::make_shared<MlpRegressor>(MlpRegressorOptions{.hidden = {4, 4}, .dropout = 0.1});
  const Shapes wanted{{"net.1.weight", {4, 6}}, {"net.1.bias", {4}},      {"net.4.weight", {4, 4}},
                      {"net.4.bias", {4}},      {"net.7.weight", {1, 4}}, {"net.7.bias", {1}}};
  EXPECT_EQ(shapes(*model, {5, 6}, {5, 1}), wanted);
}

TEST_P(Models, LenetHasTheShapesOfD2l) {
  EXPECT_EQ(shapes(*std::make_shared<Lenet>(), {5, 1, 28, 28}, {5, 10}),
            (Shapes{{"net.0.weight", {6, 1, 5, 5}},
                    {"net.0.bias", {6}},
                    {"net.3.weight", {16, 6, 5, 5}},
                    {"net.3.bias", {16}},
                    {"net.7.weight", {120, 400}},
                    {"net.7.bias", {120}},
                    {"net.9.weight", {84, 120}},
                    {"net.9.bias", {84}},
                    {"net.11.weight", {10, 84}},
                    {"net.11.bias", {10}}}));
}

TEST_P(Models, SmallCnn) {
  const auto cnn = std::make_shared<SmallCnn>();
  for (auto& module : *cnn->net)
    module.ptr()->to(device_);  // the batch norms, which have buffers from the start
  EXPECT_EQ(shapes(*cnn, {5, 1, 8, 8}, {5, 10}), (Shapes{{"net.0.weight", {16, 1, 3, 3}},
                                                         {"net.1.weight", {16}},
                                                         {"net.1.bias", {16}},
                                                         {"net.3.weight", {32, 16, 3, 3}},
                                                         {"net.4.weight", {32}},
                                                         {"net.4.bias", {32}},
                                                         {"net.8.weight", {64, 512}},
                                                         {"net.8.bias", {64}},
                                                         {"net.11.weight", {10, 64}},
                                                         {"net.11.bias", {10}}}));
}

TEST(Mlp, HidesNothingWithoutWidths) {
  const auto mlp = std::make_shared<Mlp>(MlpOptions{.hidden = {}});
  const at::Tensor x = at::rand({2, 3}), out = mlp->forward(x);
  EXPECT_TRUE(close(out, at::linear(x, mlp->parameters()[0], mlp->parameters()[1]), 1e-6));
}

TEST(Mlp, OptionsOutOfRangeAreRefused) {
  EXPECT_THROW(Mlp(MlpOptions{.hidden = {0}}), ConfigError);
  EXPECT_THROW(SmallCnn(SmallCnnOptions{.dropout = 1}), ConfigError);
}

TEST(LinearRegression, RefusesLabelsThatWouldBeBroadcast) {
  LinearRegression model;
  const std::string text = error_text<DataError>([&] { model.loss(at::zeros({3, 1}), at::zeros({3})); });
  EXPECT_EQ(
      text,
      "LinearRegression::loss: the labels are Float [3]; expected: floating-point numbers of the outputs' "
      "shape, Float [3, 1]; convert the labels where they are made: labels.to(torch::kFloat), "
      "labels.unsqueeze(1)");
}

TEST(LinearRegression, RefusesIntegers) {
  LinearRegression model;
  EXPECT_EQ(
      error_text<DataError>([&] {
        model.loss(at::zeros({3, 1}), at::zeros({3}, at::kLong));
      }),
      "LinearRegression::loss: the labels are Long [3]; expected: floating-point numbers of the outputs' "
      "shape, Float [3, 1]; convert the labels where they are made: labels.to(torch::kFloat), "
      "labels.unsqueeze(1); for class numbers choose a classifier, such as softmax_regression");
  EXPECT_THROW(model.loss(at::zeros({3, 1}), at::zeros({3, 1}, at::kLong)), DataError);
  EXPECT_NO_THROW(model.loss(at::zeros({3, 1}), at::zeros({3, 1}, at::kDouble)));
}

TEST(LinearRegression, LossIsTheMeanSquare) {
  LinearRegression model;
  const at::Tensor loss = model.loss(at::tensor({1.f, 4.f}), at::tensor({0.f, 1.f}));
  EXPECT_TRUE(same(loss, at::scalar_tensor(5, at::kFloat)));
}

TEST(MlpRegressor, RefusesLabelsThatWouldBeBroadcast) {
  MlpRegressor model;
  EXPECT_EQ(
      error_text<DataError>([&] {
        model.loss(at::zeros({3, 1}), at::zeros({3}));
      }),
      "MlpRegressor::loss: the labels are Float [3]; expected: floating-point numbers of the outputs' shape, "
      "Float [3, 1]; convert the labels where they are made: labels.to(torch::kFloat), labels.unsqueeze(1)");
}

// Outputs and losses have the unit of the labels; the gradients are those of a twin that learns scaled
// labels.
TEST_P(Models, RegressionLearnsScaledTargetsInTheirUnit) {
  at::manual_seed(1);
  const at::Tensor inputs = at::randn({32, 3}).to(device_), unit = at::tensor({100.f, 0.01f}),
                   labels = (at::randn({32, 2}) * unit + at::tensor({5000.f, -1.f})).to(device_);
  MlpRegressor model({.hidden = {4}, .num_targets = 2, .scale_target = true}),
      twin({.hidden = {4}, .num_targets = 2});
  for (MlpRegressor* one : {&model, &twin}) one->to(device_), one->forward(inputs);
  {
    const at::NoGradGuard no_grad;
    const auto of_model = model.parameters(), of_twin = twin.parameters();
    for (std::size_t i = 0; i < of_twin.size(); ++i) of_model[i].copy_(of_twin[i]);
  }
  model.fit_target_scale(labels.cpu());
  const at::Tensor mean = labels.to(at::kDouble).mean(0).to(at::kFloat),
                   deviation = labels.to(at::kDouble).std(0, /*unbiased=*/false).to(at::kFloat);
  EXPECT_TRUE(at::equal(model.named_buffers()["target_mean"], mean));
  EXPECT_TRUE(at::allclose(model.forward(inputs), twin.forward(inputs) * deviation + mean));
  const at::Tensor loss = model.loss(model.forward(inputs), labels);
  EXPECT_TRUE(at::equal(loss, at::mse_loss(model.forward(inputs), labels)));
  loss.backward();
  twin.loss(twin.forward(inputs), (labels - mean) / deviation).backward();
  for (std::size_t i = 0; i < twin.parameters().size(); ++i)
    EXPECT_TRUE(at::allclose(model.parameters()[i].grad(), twin.parameters()[i].grad(), 1e-3, 1e-4)) << i;
  const at::Tensor constant = at::full({4, 2}, 7.);
  model.fit_target_scale(constant);
  EXPECT_TRUE(at::equal(model.named_buffers()["target_std"].cpu(), at::ones({2})));
}

TEST(MlpRegressor, RefusesTargetsWithoutAScale) {
  MlpRegressor model({.scale_target = true});
  EXPECT_NE(error_text<DataError>([&] {
              model.fit_target_scale(at::zeros({3, 2}));
            }).find("[3, 2]"),
            std::string::npos)
      << error_text<DataError>([&] {
           model.fit_target_scale(at::zeros({3, 2}));
         });
  EXPECT_NE(error_text<DataError>([&] {
              model.fit_target_scale(at::full({3, 1}, INFINITY));
            }).find("not finite"),
            std::string::npos);
  EXPECT_NE(error_text<Error>([&] {
              MlpRegressor().fit_target_scale(at::zeros({3, 1}));
            }).find("scale_target"),
            std::string::npos);
}

TEST(MlpRegressor, RefusesOptionsOutOfRange) {
  EXPECT_THROW(MlpRegressor(MlpRegressorOptions{.hidden = {0}}), ConfigError);
  EXPECT_THROW(MlpRegressor(MlpRegressorOptions{.dropout = 1}), ConfigError);
  EXPECT_EQ(error_text<ConfigError>([] { MlpRegressor(MlpRegressorOptions{.activation = "rele"}); }),
            "mlp_regressor: activation is \"rele\"; expected: one of \"relu\", \"gelu\", \"silu\", \"tanh\", "
            "\"sigmoid\"");
}

TEST(MlpRegressor, AppliesItsActivation) {
  const at::Tensor x = at::linspace(-2, 2, 5).unsqueeze(1);
  const auto outputs = [&](const std::string& activation) {
    const auto model =
        std::make_shared<MlpRegressor>(MlpRegressorOptions{.hidden = {1}, .activation = activation});
    model->forward(x);
    const torch::NoGradGuard no_grad;
    for (at::Tensor& parameter : model->parameters()) parameter.fill_(parameter.dim() == 2 ? 1 : 0);
    return model->forward(x);
  };
  EXPECT_TRUE(same(outputs("relu"), at::relu(x)));
  EXPECT_TRUE(same(outputs("gelu"), at::gelu(x)));
  EXPECT_TRUE(same(outputs("silu"), at::silu(x)));
  EXPECT_TRUE(same(outputs("tanh"), at::tanh(x)));
  EXPECT_TRUE(same(outputs("sigmoid"), at::sigmoid(x)));
}

TEST(Classifier, LossOfEqualLogitsIsTheLogOfTheClasses) {
  Mlp model;
  const at::Tensor logits = at::zeros({3, 4}), labels = at::tensor({0, 1, 3}, at::kLong);
  EXPECT_NEAR(model.loss(logits, labels).item<double>(), std::log(4.0), 1e-6);
  EXPECT_FLOAT_EQ(model.accuracy(logits, labels).item<float>(), 1.f / 3);  // the first of equals wins
}

TEST(Classifier, TakesProbabilitiesOfTheClasses) {
  Mlp model;
  const at::Tensor logits = at::zeros({2, 4});
  const at::Tensor shares = at::tensor({1.f, 0.f, 0.f, 0.f, 0.f, 0.75f, 0.25f, 0.f}).view({2, 4});
  EXPECT_NEAR(model.loss(logits, shares).item<double>(), std::log(4.0), 1e-6);
  EXPECT_FLOAT_EQ(model.accuracy(logits, shares).item<float>(), 0.5);
}

TEST(Classifier, TakesAClassForEveryPixel) {
  Mlp model;
  EXPECT_NO_THROW(model.loss(at::zeros({2, 4, 3, 5}), at::zeros({2, 3, 5}, at::kLong)));
}

TEST(Classifier, RefusesLabelsThatAreNoClasses) {
  Mlp model;
  const at::Tensor logits = at::zeros({3, 4});
  EXPECT_EQ(error_text<DataError>([&] {
              model.loss(logits, at::zeros({3, 1}, at::kLong));
            }),
            "Classifier::loss: the labels are Long [3, 1], the outputs Float [3, 4]; expected: class numbers "
            "Long [3] or class probabilities Float [3, 4]; convert the labels where they are made: "
            "labels.to(torch::kLong), labels.squeeze(1)");
  for (const at::Tensor& labels : {at::zeros({3}), at::zeros({3}, at::kInt), at::zeros({2}, at::kLong),
                                   at::zeros({3, 4}, at::kLong), at::zeros({3, 3}), at::zeros({}, at::kLong)})
    EXPECT_THROW(model.loss(logits, labels), DataError) << labels;
  const std::string text =
      error_text<DataError>([&] { model.loss(at::zeros({4}), at::zeros({}, at::kLong)); });
  EXPECT_NE(text.find("expected: outputs [batch, classes, …]"), std::string::npos) << text;
}

TEST(Classifier, TheLossRefusesLabelsBeforeTheMetrics) {
  Trainer trainer({.max_epochs = 1});
  const auto model = std::make_shared<Mlp>();
  trainer.prepare_model(model);
  const std::string text = error_text<DataError>([&] {
    trainer.train_step({at::zeros({3, 8}), at::zeros({3, 1}, at::kLong)});
  });
  EXPECT_EQ(text.find("Classifier::loss"), 0U) << text;
}

TEST(SequentialNets, NameTheLayersOfOneChain) {
  struct Net : SequentialNet<Classifier> {
    Net() : SequentialNet(torch::nn::Sequential(torch::nn::Flatten(), LazyLinear(3))) {}
  };
  Net net;
  EXPECT_EQ(net.forward(at::zeros({2, 1, 2, 2})).sizes(), (std::vector<std::int64_t>{2, 3}));
  EXPECT_EQ(net.named_parameters().keys(), (std::vector<std::string>{"net.1.weight", "net.1.bias"}));
}

TEST(Lenet, WeightsAreXaviers) {
  at::manual_seed(1);
  const auto net = std::make_shared<Lenet>();
  net->forward(at::zeros({1, 1, 28, 28}));
  at::manual_seed(1);
  at::Tensor weight = at::empty({6, 1, 5, 5});
  torch::nn::init::xavier_uniform_(weight);
  EXPECT_TRUE(same(net->parameters()[0], weight));
}

}  // namespace
}  // namespace kindling
