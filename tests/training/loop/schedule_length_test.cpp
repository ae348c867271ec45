// The schedule's view of the run's length, and the rates of parameter groups.
#include <gtest/gtest.h>

#include <set>

#include "kindling/optim/decay_schedules.h"
#include "training/loop/small_fit.h"

namespace kindling {
namespace {

// A constant rate that records the length of the run that it is given.
Schedule noting(std::set<std::int64_t>& lengths) {
  return [&lengths](const SchedulePoint& at) {
    lengths.insert(at.total_steps);
    return at.base_lr;
  };
}

// Of a fit over three batches an epoch.
std::set<std::int64_t> lengths_in(TrainerOptions options) {
  std::set<std::int64_t> lengths;
  options.schedule = noting(lengths);
  TensorData data = ramp(5, 2, 2);
  Trainer(options).fit(std::make_shared<Slope>(), data);
  return lengths;
}

using Lengths = std::set<std::int64_t>;

TEST(ScheduleLength, IsWhatEndsTheRunFirst) {
  EXPECT_EQ(lengths_in({.max_epochs = 2}), Lengths{6});
  EXPECT_EQ(lengths_in({.max_steps = 4}), Lengths{4});
  EXPECT_EQ(lengths_in({.max_epochs = 2, .max_steps = 99}), Lengths{6});
  EXPECT_EQ(lengths_in({.max_epochs = 99, .max_steps = 4}), Lengths{4});
  EXPECT_EQ(lengths_in({.max_epochs = 2, .limit_train_batches = 1}), Lengths{2});
}

TEST(ScheduleLength, OverEpochsIsInEpochs) {
  const auto by_epoch = [](TrainerOptions options) {
    options.schedule_interval = ScheduleInterval::epoch;
    return lengths_in(options);
  };
  EXPECT_EQ(by_epoch({.max_epochs = 2}), Lengths{2});
  EXPECT_EQ(by_epoch({.max_steps = 4}), Lengths{2});
  EXPECT_EQ(by_epoch({.max_epochs = 2, .max_steps = 99}), Lengths{2});
  EXPECT_EQ(by_epoch({.max_epochs = 99, .max_steps = 7}), Lengths{3});
}

TEST(ScheduleLength, OfAFitDoesNotAffectALaterCustomLoop) {
  std::set<std::int64_t> lengths;
  Trainer trainer({.max_epochs = 2, .schedule = noting(lengths)});
  TensorData data = ramp(5, 2, 2);
  const auto model = std::make_shared<Slope>();
  trainer.fit(model, data);
  EXPECT_EQ(trainer.progress().num_train_batches, 0);
  lengths.clear();
  trainer.prepare_model(model);
  EXPECT_EQ(model->trainer().num_train_batches(), 0);
  const at::Tensor x = at::ones({2, 1});
  trainer.train_step(trainer.prepare_batch(Batch{x, 2 * x}));
  EXPECT_EQ(lengths, Lengths{0}) << "how many batches come is not known";
}

// Two slopes in groups of their own, with rates of their own.
class TwoRates : public Slope {
 public:
  TwoRates() : second(register_parameter("second", at::zeros({1}))) {}
  at::Tensor forward(const at::Tensor& x) override { return x * (weight + second); }
  std::unique_ptr<Optimizer> configure_optimizers() override {
    return std::make_unique<Sgd>(
        ParameterGroups{{.parameters = {weight}, .lr = 0.25}, {.parameters = {second}}},
        SgdOptions{.lr = 0.0625});
  }
  at::Tensor second;
};

class Rates : public Callback {
 public:
  void on_before_optimizer_step(Trainer&, Module&, Optimizer& optimizer) override {
    of_steps.emplace_back(optimizer.lr(0), optimizer.lr(1));
    EXPECT_EQ(optimizer.names(), (std::vector<std::string>{"weight", "second"}));
  }
  std::vector<std::pair<double, double>> of_steps;
};

TEST(ScheduleOfGroups, FollowsTheRateOfEach) {
  for (const bool by_options : {false, true}) {
    const auto rates = std::make_shared<Rates>();
    const auto model = std::make_shared<TwoRates>();
    TrainerOptions options{
        .max_epochs = 1, .schedule = step_schedule({.step_size = 1, .gamma = 0.5}), .callbacks = {rates}};
    if (by_options)
      options.optimizer = [](const ParameterGroups& parameters) {
        const std::vector<at::Tensor> all = parameters;
        return std::make_unique<Sgd>(
            ParameterGroups{{.parameters = {all.at(0)}, .lr = 0.25}, {.parameters = {all.at(1)}}},
            SgdOptions{.lr = 0.0625});
      };
    TensorData data = ramp(3, 0, 1);  // the gradients are 0, -1, -2
    Trainer trainer(options);
    trainer.fit(model, data);
    EXPECT_EQ(rates->of_steps,
              (std::vector<std::pair<double, double>>{{0.25, 0.0625}, {0.125, 0.03125}, {0.0625, 0.015625}}));
    EXPECT_EQ(model->weight.item<float>(), 0.125F * 1 + 0.0625F * 2);
    EXPECT_EQ(model->second.item<float>(), 0.03125F * 1 + 0.015625F * 2);
    EXPECT_EQ(trainer.lr(), 0.0625) << "of the first group";
  }
}

TEST(RatesOfGroups, OneNumberIsForAllAndReplacesATensor) {
  TwoRates model;
  const auto optimizer = model.configure_optimizers();
  optimizer->set_lr(0, at::full({}, 8., at::kDouble));
  optimizer->set_lr(0.5);
  EXPECT_EQ(optimizer->lr(0), 0.5);
  EXPECT_EQ(optimizer->lr(1), 0.5);
  (model.weight + model.second).sum().backward();
  optimizer->step();
  EXPECT_EQ(model.weight.item<float>(), -0.5F);
  EXPECT_EQ(model.second.item<float>(), -0.5F);
}

TEST(NamesOfGroups, AreKept) {
  TwoRates model;
  Sgd sgd(ParameterGroups{{.parameters = {model.weight}, .names = {"mine"}}, {.parameters = {model.second}}});
  sgd.take_names(model);
  EXPECT_EQ(sgd.names(), (std::vector<std::string>{"mine", "second"}));
}

}  // namespace
}  // namespace kindling
