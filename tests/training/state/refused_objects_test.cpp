// Objects and options that a trainer refuses.
#include <gtest/gtest.h>

#include "kindling/base/error.h"
#include "kindling/training/callback.h"
#include "support/scratch.h"
#include "support/tensor_matchers.h"
#include "training/loop/small_fit.h"

namespace kindling {
namespace {

TEST(RefusedObjects, NullPointersAreNamed) {
  TensorData data = ramp(4, 2, 2);
  const std::shared_ptr<Module> none;
  Trainer trainer({.max_epochs = 1});
  const auto text = [](const auto& call) { return error_text<ConfigError>(call); };
  EXPECT_EQ(text([&] { trainer.fit(none, data); }),
            "Trainer::fit: the model is a null pointer; expected: a model; make it with std::make_shared");
  EXPECT_THROW(trainer.prepare_model(none), ConfigError);
  EXPECT_THROW(trainer.validate(none, data), ConfigError);
  EXPECT_THROW(trainer.test(none, data), ConfigError);
  EXPECT_THROW(trainer.predict(none, data), ConfigError);
  EXPECT_THROW(trainer.predict(none, data, [](const Prediction&) {}), ConfigError);
  EXPECT_THROW(trainer.layer_summary(none, data), ConfigError);
  EXPECT_EQ(
      text([] {
        Trainer({.callbacks = {std::make_shared<Callback>(), nullptr}});
      }),
      "TrainerOptions::callbacks: element 1 (counted from 0) is a null pointer; expected: objects; create "
      "them with std::make_shared");
  EXPECT_THROW(Trainer({.loggers = {nullptr}}), ConfigError);
  EXPECT_EQ(trainer.fit(std::make_shared<Slope>(), data).status, FitStatus::finished);
}

TEST(RefusedOptions, MoreThreadsThanAProcessCanHaveAreRefused) {
  EXPECT_EQ(error_text<ConfigError>([] { Trainer({.num_threads = 100'000}); }),
            "trainer.num_threads: 100000; expected: at most 1024, one per core at best");
}

// The factory of the first fold's model, used for the second one's.
TEST(RefusedObjects, AnOptimizerOfAnotherModelIsNamed) {
  TensorData data = ramp(4, 2, 2);
  const auto first = std::make_shared<Slope>(), second = std::make_shared<Slope>();
  Trainer trainer({.max_epochs = 1, .optimizer = [first](const ParameterGroups&) {
                     return std::make_unique<Sgd>(*first, SgdOptions{.lr = 0.1});
                   }});
  trainer.fit(first, data);
  const std::string text = error_text<ConfigError>([&] { trainer.fit(second, data); });
  EXPECT_NE(text.find("none of its 1 parameters belongs to "), std::string::npos) << text;
  EXPECT_NE(text.find("create it from the factory's argument"), std::string::npos) << text;
  EXPECT_TRUE(same(second->weight, at::zeros({1})));
}

// Also by a loop that continues after the first error.
TEST(RefusedObjects, AnOptimizerOfAnotherModelStaysRefused) {
  const auto model = std::make_shared<Slope>();
  Trainer trainer({.max_epochs = 1, .optimizer = [](const ParameterGroups&) {
                     return std::make_unique<Sgd>(Slope(), SgdOptions{.lr = 0.1});
                   }});
  trainer.prepare_model(model);
  const Batch batch({at::ones({2, 1}), at::ones({2, 1})});
  for (int i = 0; i < 2; ++i) EXPECT_THROW(trainer.train_step(batch), ConfigError);
  EXPECT_TRUE(same(model->weight, at::zeros({1})));
}

// As of an image that is made to look like another one.
TEST(RefusedObjects, AModelsOptimizerMayUpdateUnregisteredTensors) {
  struct Picture : Slope {
    at::Tensor forward(const at::Tensor& x) override { return x * (weight.detach() + picture); }
    std::unique_ptr<Optimizer> configure_optimizers() override {
      return std::make_unique<Sgd>(std::vector<at::Tensor>{picture}, SgdOptions{.lr = 0.1});
    }
    at::Tensor picture = at::zeros({1}).requires_grad_();
  };
  TensorData data = ramp(4, 0, 2);
  const auto model = std::make_shared<Picture>();
  Trainer({.max_epochs = 1}).fit(model, data);
  EXPECT_FALSE(same(model->picture, at::zeros({1})));
}

// One of several is enough: a loss may have parameters that the model does not register.
TEST(RefusedObjects, AnOptimizerMayHaveAdditionalParameters) {
  TensorData data = ramp(4, 0, 2);
  const auto model = std::make_shared<Slope>();
  const at::Tensor other = at::ones({1}).requires_grad_();
  Trainer trainer(
      {.max_epochs = 1, .optimizer = [&](const ParameterGroups&) {
         return std::make_unique<Sgd>(std::vector<at::Tensor>{other, model->weight}, SgdOptions{.lr = 0.1});
       }});
  trainer.fit(model, data);
  EXPECT_FALSE(same(model->weight, at::zeros({1})));
}

}  // namespace
}  // namespace kindling
