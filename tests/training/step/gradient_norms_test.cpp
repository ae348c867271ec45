// Norms of gradients that are logged: TrainerOptions::track_grad_norm.
#include <gtest/gtest.h>

#include <limits>
#include <optional>

#include "kindling/base/error.h"
#include "support/device_under_test.h"
#include "support/scratch.h"
#include "training/loop/small_fit.h"
#include "training/step/optimizer_update.h"
#include "training/step/point_gan.h"

namespace kindling {
namespace {

class NormsOfGradients : public OnDevice {
 protected:
  std::vector<Record> of(std::shared_ptr<Module> model, TrainerOptions options) {
    const auto logger = std::make_shared<MemoryLogger>();
    options.max_epochs = 1;
    options.num_gpus = num_gpus_wanted();
    options.log_every_n_steps = 1;
    options.loggers = {logger};
    if (!options.optimizer) options.optimizer = sgd(0.125);
    TensorData data = ramp(5, 0, 2);
    Trainer(std::move(options)).fit(std::move(model), data);
    return logger->records();
  }
};
KINDLING_RUN_ON_TRAINER_DEVICES(NormsOfGradients);

std::vector<double> values_of(const std::vector<Record>& records, const std::string& name) {
  std::vector<double> values;
  for (const Record& record : records)
    if (record.find(name) != nullptr) values.push_back(value_of(record, name));
  return values;
}

// The gradient of a slope is the mean of its batch: {0, 1}, {2, 3}, {4}.
TEST_P(NormsOfGradients, AreReportedForEveryStepAndAsMean) {
  const auto records = of(std::make_shared<Slope>(), {.track_grad_norm = 2});
  EXPECT_EQ(values_of(records, "grad_norm/weight_step"), (std::vector<double>{0.5, 2.5, 4}));
  EXPECT_EQ(value_of(records.back(), "grad_norm/weight"), 2);  // (2·0.5 + 2·2.5 + 1·4) / 5
}

TEST_P(NormsOfGradients, AreOffByDefault) {
  for (const Record& record : of(std::make_shared<Slope>(), {}))
    EXPECT_EQ(record.find("grad_norm/weight") == nullptr && record.find("grad_norm/weight_step") == nullptr,
              true);
}

TEST_P(NormsOfGradients, AreMeasuredBeforeClipping) {
  const auto records = of(std::make_shared<Slope>(), {.gradient_clip_val = 0.25, .track_grad_norm = 2});
  EXPECT_EQ(values_of(records, "grad_norm/weight_step"), (std::vector<double>{0.5, 2.5, 4}));
}

TEST_P(NormsOfGradients, ExcludeTheScaleOfTheLoss) {
  const auto records = of(std::make_shared<Slope>(), {.precision = "16-mixed", .track_grad_norm = 2});
  EXPECT_EQ(values_of(records, "grad_norm/weight_step"), (std::vector<double>{0.5, 2.5, 4}));
}

// Of a window the norm of the mean gradient: Σx over samples 0 to 3, then sample 4.
TEST_P(NormsOfGradients, CoverAWholeWindow) {
  const auto records = of(std::make_shared<Slope>(), {.accumulate_grad_batches = 2, .track_grad_norm = 2});
  EXPECT_EQ(values_of(records, "grad_norm/weight_step"), (std::vector<double>{1.5, 4}));
}

// Two parameters with the gradients (3, 4) and 12.
class TwoGradients : public Slope {
 public:
  TwoGradients() : pair_(register_parameter("pair", at::zeros({2}))) {}
  at::Tensor training_step(const Batch&) override {
    return (pair_ * at::tensor({3., 4.}, pair_.options())).sum() + 12 * weight.sum();
  }

 private:
  at::Tensor pair_;
};

TEST_P(NormsOfGradients, UseTheChosenP) {
  const auto norm = [&](double p, const std::string& name) {
    return values_of(of(std::make_shared<TwoGradients>(), {.track_grad_norm = p}), "grad_norm/" + name);
  };
  EXPECT_EQ(norm(2, "pair"), std::vector<double>{5});
  EXPECT_EQ(norm(1, "pair"), std::vector<double>{7});
  EXPECT_EQ(norm(std::numeric_limits<double>::infinity(), "pair"), std::vector<double>{4});
  EXPECT_EQ(norm(2, "weight"), std::vector<double>{12});
}

// The gradient 3 + 4i is the pair (3, 4); the norms of the number itself are all 5.
class ComplexGradient : public Slope {
 public:
  ComplexGradient() : number_(register_parameter("number", at::zeros({1}, at::kComplexFloat))) {}
  at::Tensor training_step(const Batch&) override {
    return (at::view_as_real(number_) * at::tensor({3.F, 4.F}, weight.options())).sum() + weight.sum();
  }

 private:
  at::Tensor number_;
};

TEST_P(NormsOfGradients, TakeComplexNumbersAsPairs) {
  const auto norm = [&](double p) {
    return values_of(of(std::make_shared<ComplexGradient>(), {.track_grad_norm = p}), "grad_norm/number");
  };
  EXPECT_EQ(norm(1), std::vector<double>{7});
  EXPECT_EQ(norm(std::numeric_limits<double>::infinity()), std::vector<double>{4});
}

TEST_P(NormsOfGradients, AreReportedForEachOptimizer) {
  const auto logger = std::make_shared<MemoryLogger>();
  TensorData data = gan_points();
  Trainer({.max_epochs = 1, .num_gpus = num_gpus_wanted(), .track_grad_norm = 2, .loggers = {logger}})
      .fit(std::make_shared<PointGan>(), data);
  const Record& epoch = logger->records().back();
  EXPECT_GT(value_of(epoch, "grad_norm/generator.0.weight"), 0);
  EXPECT_GT(value_of(epoch, "grad_norm/discriminator.2.bias"), 0);
}

class TwoParameters : public Slope {
 public:
  TwoParameters() : other(register_parameter("other", at::zeros({1}))) { backward(); }
  void backward() { (3 * weight.sum() + 4 * other.sum()).backward(); }
  at::Tensor other;
};

// The second optimizer may be at the address that the first one had.
TEST(GradientNorms, NamesParametersOfAReplacedOptimizer) {
  const auto model = std::make_shared<TwoParameters>();
  std::vector<at::Tensor> trained{model->other, model->weight};
  Trainer owner;
  TrainingContext context(owner,
                          {.track_grad_norm = 2,
                           .optimizer =
                               [&](ParameterGroups) {
                                 const at::Tensor parameter = trained.back();
                                 trained.pop_back();
                                 return std::make_unique<Sgd>(ParameterGroups{parameter});
                               }},
                          /*gpus=*/{});
  context.state.start(model);
  OptimizerUpdate update(StepContext(context), context.callbacks, context.stop, /*capture=*/nullptr);
  for (int i = 0; i < 2; ++i) {
    context.state.optimizer.reset();
    update.run(context.state.require_optimizer(), /*name=*/{}, {}, /*closure=*/nullptr);
  }
  EpochLog& log = context.state.log;
  log.append({.global_step = 1});
  log.move_to_host();
  const auto norm = [&](const std::string& name) { return log.value(0, log.column("grad_norm/" + name)); };
  EXPECT_EQ(norm("weight"), 3);
  EXPECT_EQ(norm("other"), 4);
}

TEST(GradientNormOptions, AreChecked) {
  EXPECT_EQ(error_text<ConfigError>([] { Trainer({.track_grad_norm = -1}); }),
            "TrainerOptions: track_grad_norm is -1.0; expected: a number >= 0");
}

}  // namespace
}  // namespace kindling
