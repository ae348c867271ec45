// Class weights of a classifier: the loss, and fits with them.
#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <limits>

#include "data/sources/training_labels.h"
#include "kindling/base/error.h"
#include "kindling/data/data_module.h"
#include "kindling/data/sampler.h"
#include "kindling/loggers/memory_logger.h"
#include "kindling/models/softmax_regression.h"
#include "kindling/optim/sgd.h"
#include "kindling/tensors/state_dict.h"
#include "kindling/training/trainer.h"
#include "nn/precision.h"
#include "support/python.h"
#include "support/rank_threads.h"
#include "support/scratch.h"
#include "support/tensor_matchers.h"

namespace kindling {
namespace {

// 64 samples in order; three of four have class 0.
struct UnevenClasses : DataModule {
  UnevenClasses() : DataModule({.batch_size = 16, .shuffle = false}) {
    const at::Tensor place = at::arange(64 * 5, at::kFloat).reshape({64, 5});
    x = place.mul(0.37).sin();
    y = at::where(at::arange(64).remainder(4).eq(3), at::arange(64).remainder(3).div(2, "floor").add(1), 0);
  }
  std::shared_ptr<DataLoader> train_dataloader() override { return get_tensorloader({x, y}, true); }
  std::shared_ptr<DataLoader> val_dataloader() override { return get_tensorloader({x, y}, false); }

  at::Tensor x, y;
};

std::shared_ptr<SoftmaxRegression> weighted_model(const at::Tensor& weights) {
  at::manual_seed(3);
  auto model = std::make_shared<SoftmaxRegression>(SoftmaxRegressionOptions{.num_classes = 3});
  model->forward(at::zeros({1, 5}));
  model->set_class_weights(weights);
  return model;
}

TrainerOptions five_epochs(const std::string& step_graph = "off") {
  TrainerOptions options{.max_epochs = 5};
  options.step_graph = step_graph;
  options.optimizer = [](ParameterGroups parameters) {
    return std::make_unique<Sgd>(std::move(parameters), SgdOptions{.lr = 0.5});
  };
  return options;
}

TEST(ClassWeights, LossIsTheWeightedMeanOverTheBatch) {
  SoftmaxRegression model({.num_classes = 2});
  model.set_class_weights(at::tensor({1.0, 3.0}));
  const at::Tensor logits = at::tensor({0.0F, 0.0F, 1.0F, 0.0F}).reshape({2, 2});
  const at::Tensor labels = at::tensor({0, 1}, at::kLong);
  const double expected = (std::log(2.0) + 3 * std::log(1 + std::exp(1.0))) / 4;
  EXPECT_NEAR(model.loss(logits, labels).item<double>(), expected, 1e-6);  // of float32
  EXPECT_NEAR(model.loss(logits.to(at::kDouble), labels).item<double>(), expected, 1e-14);
  EXPECT_NEAR(model.loss(logits.to(at::kBFloat16), labels).item<double>(), expected, 0.02);  // 8 bits
  model.set_class_weights({});
  EXPECT_NEAR(model.loss(logits, labels).item<double>(), (std::log(2.0) + std::log(1 + std::exp(1.0))) / 2,
              1e-6);
}

// Autocast computes the loss in float32, with the weights as they are.
TEST(ClassWeights, AreNotRoundedUnderAutocast) {
  const at::Tensor logits = at::tensor({0.0F, 0.5F, 1.0F, 0.0F}).reshape({2, 2});
  const at::Tensor labels = at::tensor({0, 1}, at::kLong);
  for (const at::ScalarType dtype : {at::kBFloat16, at::kHalf}) {
    SoftmaxRegression model({.num_classes = 2});
    const at::Tensor weights = at::tensor({1.003, 70000.0});
    model.set_class_weights(weights);
    const AutocastScope autocast({.autocast = dtype}, cpu());
    const at::Tensor found = model.loss(logits.to(dtype), labels);  // both types represent these logits
    EXPECT_EQ(found.scalar_type(), at::kFloat);
    EXPECT_EQ(found.item<float>(),
              at::cross_entropy_loss(logits, labels, weights.to(at::kFloat)).item<float>());
  }
}

TEST(ClassWeights, RefusedWeightsLeaveTheFormerOnes) {
  SoftmaxRegression model({.num_classes = 2});
  model.set_class_weights(at::tensor({1.0, 3.0}));
  EXPECT_THROW(model.set_class_weights(at::tensor({1.0, -3.0})), ConfigError);
  EXPECT_TRUE(same(model.class_weights(), at::tensor({1.0, 3.0}, at::kDouble)));
}

TEST(ClassWeights, RefusesWeightsThatCannotBeUsed) {
  SoftmaxRegression model({.num_classes = 2});
  const auto message = [&](const at::Tensor& weights) {
    return error_text<ConfigError>([&] { model.set_class_weights(weights); });
  };
  EXPECT_NE(message(at::ones({2, 2})).find("[2, 2]"), std::string::npos);
  EXPECT_NE(message(at::ones({2}, at::kLong)).find("floating-point numbers [classes]"), std::string::npos);
  EXPECT_NE(message(at::tensor({1.0, -1.0})).find("negative or not finite"), std::string::npos);
  EXPECT_NE(message(at::full({2}, std::numeric_limits<double>::infinity())).find("not finite"),
            std::string::npos);
  EXPECT_NE(message(at::zeros({2})).find("all 0"), std::string::npos);
  model.set_class_weights(at::ones({3}));
  const std::string text = error_text<ConfigError>([&] {
    model.loss(at::zeros({1, 2}), at::zeros({1}, at::kLong));
  });
  EXPECT_NE(text.find("3 class weights"), std::string::npos) << text;
  EXPECT_NE(text.find("outputs of 2 classes"), std::string::npos) << text;
}

TEST(ClassWeights, OfDataWithoutAnEndCannotBeCounted) {
  struct Numbers : Dataset {
    std::int64_t size() const override { return kEndless; }
    void gather(const at::Tensor& indices, Batch& batch) const override { batch = {indices, indices}; }
  };
  struct Endless : DataModule {
    std::shared_ptr<DataLoader> train_dataloader() override {
      return std::make_shared<DataLoader>(std::make_shared<Numbers>(), loader_options(true));
    }
  } data;
  EXPECT_EQ(error_text<DataError>([&] { training_labels(data); }),
            "the labels of the training samples: the data has no end; expected: a finite data set; set "
            "model.class_weights");
}

TEST(ClassWeights, AreNotAmongTheWeightsOfTheModel) {
  const auto model = weighted_model(at::ones({3}));
  EXPECT_EQ(state_dict(*model).tensors.size(), 2);
}

// tests/training/step/counted_labels_test.cpp has those that are known.
TEST(ClassWeights, FitsRefuseStepsOfSeveralLossesWhoseWeightsAreUnknown) {
  struct OfItsOwn : SoftmaxRegression {
    OfItsOwn() : SoftmaxRegression({.num_classes = 3}) { set_class_weights(at::ones({3})); }
    at::Tensor loss(const at::Tensor& outputs, const at::Tensor& labels) override {
      return at::cross_entropy_loss(outputs, labels, class_weights().to(at::kFloat));
    }
  };
  const auto message = [](TrainerOptions options) {
    UnevenClasses data;
    return error_text<ConfigError>(
        [&] { Trainer(std::move(options)).fit(std::make_shared<OfItsOwn>(), data); });
  };
  TrainerOptions accumulating = five_epochs(), sharded = five_epochs();
  accumulating.accumulate_grad_batches = 2;
  sharded.gradient_shards = 2;
  for (const std::string& text : {message(accumulating), message(sharded)})
    EXPECT_NE(text.find("return weighted({loss, sum of the weights of the labels}) from loss()"),
              std::string::npos)
        << text;
}

// As in PyTorch, the mean over all samples, not that of the batches' means.
TEST(ClassWeights, ValidationLossIsWeighted) {
  UnevenClasses data;
  const at::Tensor weights = balanced_class_weights(data.y, 3);
  const auto model = weighted_model(weights);
  const double expected =
      at::cross_entropy_loss(model->forward(data.x), data.y, weights.to(at::kFloat)).item<double>();
  const Metrics metrics = Trainer(five_epochs()).validate(model, data);
  EXPECT_NEAR(metrics.at("val_loss"), expected, 1e-6);  // sums of float32
}

TEST(ClassWeights, TwentyStepsAreThoseOfPyTorch) {
  if (python_with_torch().empty())
    GTEST_SKIP() << "there is no Python with PyTorch; KINDLING_TORCH_PYTHON can name one";
  const Scratch scratch;
  UnevenClasses data;
  const at::Tensor weights = balanced_class_weights(data.y, 3);
  StateDict start = state_dict(*weighted_model(weights));
  start.tensors.emplace_back("x", data.x);
  start.tensors.emplace_back("y", data.y);
  start.tensors.emplace_back("class_weights", weights.to(at::kFloat));
  save_torch(start, scratch / "start.pt");
  ASSERT_EQ(std::system((python_with_torch() + " '" KINDLING_TESTS "/nn/class_weights.py' '" +
                         scratch.folder().string() + "'")
                            .c_str()),
            0);
  const StateDict python = load_state_file(scratch / "python.pt");
  for (const char* step_graph : {"off", "on"}) {
    SCOPED_TRACE(step_graph);
    const auto model = weighted_model(weights);
    const FitResult result = Trainer(five_epochs(step_graph)).fit(model, data);
    EXPECT_EQ(result.progress.global_step, 20);
    const at::Tensor last = python.find("losses")->narrow(0, 16, 4).to(at::kDouble),
                     of_batches = weights.index_select(0, data.y).view({4, 16}).sum(1);
    EXPECT_NEAR(result.metrics.at("train_loss"), last.dot(of_batches).div(of_batches.sum()).item<double>(),
                1e-6);
    // Sums of 16 samples in another order; 20 steps.
    for (const auto& item : model->named_parameters())
      EXPECT_TRUE(close(item.value(), *python.find(item.key()), 1e-6)) << item.key();
  }
}

}  // namespace
}  // namespace kindling
