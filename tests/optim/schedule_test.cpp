#include "kindling/optim/schedule.h"

#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include <cmath>

#include "kindling/base/error.h"
#include "kindling/optim/cosine_schedules.h"
#include "kindling/optim/decay_schedules.h"
#include "kindling/optim/sgd.h"
#include "support/scratch.h"

namespace kindling {
namespace {

double at_step(const Schedule& schedule, std::int64_t step, std::int64_t total = 100) {
  return schedule({.step = step, .total_steps = total, .base_lr = 0.1});
}

TEST(Schedule, ConstantReducesTheFirstSteps) {
  EXPECT_DOUBLE_EQ(at_step(constant_schedule(), 0), 0.1);
  const Schedule reduced = constant_schedule({.factor = 0.5, .total_iters = 3});
  EXPECT_DOUBLE_EQ(at_step(reduced, 2), 0.05);
  EXPECT_DOUBLE_EQ(at_step(reduced, 3), 0.1);
}

TEST(Schedule, StepDropsAtMultiples) {
  const Schedule drops = step_schedule({.step_size = 4, .gamma = 0.5});
  EXPECT_DOUBLE_EQ(at_step(drops, 3), 0.1);
  EXPECT_DOUBLE_EQ(at_step(drops, 4), 0.05);
  EXPECT_DOUBLE_EQ(at_step(drops, 11), 0.025);
}

TEST(Schedule, LinearGoesFromStartToEndAndStays) {
  const Schedule linear = linear_schedule({.start_factor = 0, .end_factor = 0.5, .total_iters = 4});
  EXPECT_DOUBLE_EQ(at_step(linear, 0), 0);
  EXPECT_DOUBLE_EQ(at_step(linear, 2), 0.025);
  EXPECT_DOUBLE_EQ(at_step(linear, 4), 0.05);
  EXPECT_DOUBLE_EQ(at_step(linear, 50), 0.05);
}

TEST(Schedule, CosineIsHalfWayInTheMiddle) {
  const Schedule cosine = cosine_schedule({.T_max = 10, .eta_min = 0.02});
  EXPECT_DOUBLE_EQ(at_step(cosine, 0), 0.1);
  EXPECT_NEAR(at_step(cosine, 5), 0.06, 1e-15);
  EXPECT_NEAR(at_step(cosine, 10), 0.02, 1e-15);
}

TEST(Schedule, LengthIsTheRunsWhenNoneIsSet) {
  EXPECT_NEAR(at_step(cosine_schedule(), 20, 40), 0.05, 1e-15);
  EXPECT_DOUBLE_EQ(at_step(linear_schedule({.start_factor = 0}), 10, 40), 0.025);
}

TEST(Schedule, WarmupRisesThenTheScheduleCountsFromThere) {
  const Schedule warm = with_warmup(step_schedule({.step_size = 3, .gamma = 0.1}),
                                    {.warmup_steps = 4, .warmup_start_factor = 0.2});
  EXPECT_DOUBLE_EQ(at_step(warm, 0), 0.02);
  EXPECT_DOUBLE_EQ(at_step(warm, 2), 0.06);
  EXPECT_DOUBLE_EQ(at_step(warm, 4), 0.1);
  EXPECT_DOUBLE_EQ(at_step(warm, 6), 0.1);
  EXPECT_DOUBLE_EQ(at_step(warm, 7), 0.01);
}

TEST(Schedule, WarmupLeavesTheRestOfTheRun) {
  const Schedule warm = with_warmup(cosine_schedule(), {.warmup_steps = 20});
  EXPECT_NEAR(at_step(warm, 60, 100), 0.05, 1e-15);  // half of the remaining 80
  EXPECT_DOUBLE_EQ(at_step(with_warmup(constant_schedule(), {}), 0), 0.1);
}

TEST(Schedule, OptionsOutOfRangeAreRefused) {
  EXPECT_THROW(step_schedule({.step_size = 0}), ConfigError);
  EXPECT_THROW(constant_schedule({.factor = -1}), ConfigError);
  EXPECT_THROW(cosine_schedule({.T_max = 0}), ConfigError);
  EXPECT_THROW(linear_schedule({.total_iters = 0}), ConfigError);
  EXPECT_THROW(with_warmup(constant_schedule(), {.warmup_start_factor = 2}), ConfigError);
  EXPECT_THROW(multistep_schedule({.milestones = {-1}}), ConfigError);
  EXPECT_THROW(exponential_schedule({.gamma = -1}), ConfigError);
  EXPECT_THROW(polynomial_schedule({.power = -1}), ConfigError);
  EXPECT_THROW(cosine_restarts_schedule({.T_0 = 3, .T_mult = 0}), ConfigError);
  EXPECT_THROW(inverse_sqrt_schedule({.timescale = 0}), ConfigError);
  EXPECT_THROW(one_cycle_schedule({.pct_start = 1.5}), ConfigError);
  EXPECT_THROW(one_cycle_schedule({.anneal_strategy = "sine"}), ConfigError);
  EXPECT_THROW(one_cycle_schedule({.div_factor = 0}), ConfigError);
  EXPECT_THROW(one_cycle_schedule({.max_momentum = 1}), ConfigError);
  EXPECT_THROW(plateau_schedule({.factor = 1}), ConfigError);
  EXPECT_THROW(plateau_schedule({.mode = "least"}), ConfigError);
  EXPECT_THROW(PlateauCounter({.threshold_mode = "relative"}), ConfigError);
}

TEST(Schedule, SaysWhichOptionMustBeSet) {
  EXPECT_EQ(error_text<ConfigError>([] { multistep_schedule({}); }),
            "multistep schedule: milestones is not set; expected: at least one step");
  EXPECT_EQ(error_text<ConfigError>([] { exponential_schedule({}); }),
            "exponential schedule: gamma is not set; expected: the factor of each step");
  EXPECT_EQ(
      error_text<ConfigError>([] { cosine_restarts_schedule({}); }),
      "cosine_restarts schedule: T_0 is not set; expected: the number of steps until the first restart");
}

TEST(Schedule, RestartsOfAnyLengthAreFound) {
  constexpr std::int64_t kHuge = std::int64_t{1} << 62;
  const Schedule rare = cosine_restarts_schedule({.T_0 = 4, .T_mult = kHuge});
  EXPECT_NEAR(at_step(rare, 2), 0.05, 1e-15);
  EXPECT_NEAR(at_step(rare, 1000), 0.1, 1e-15) << "at the very beginning of a period without end";
}

TEST(Schedule, OneCycleTakesTheLengthAndTheRateOfTheRun) {
  const Schedule cycle = one_cycle_schedule({.pct_start = 0.5});
  EXPECT_DOUBLE_EQ(at_step(cycle, 0), 0.004);
  EXPECT_DOUBLE_EQ(at_step(cycle, 49), 0.1);
  EXPECT_NEAR(at_step(cycle, 99), 4e-7, 1e-16);
  EXPECT_FALSE(one_cycle_schedule({.cycle_momentum = false}).momentum);
}

TEST(Schedule, OneCycleIsNotShorterThanItsRun) {
  const Schedule cycle = one_cycle_schedule({.total_steps = 50});
  EXPECT_EQ(error_text<ConfigError>([&] { at_step(cycle, 0); }),
            "one_cycle schedule: total_steps is 50, but the run has 100; expected: a cycle of the run's "
            "length; omit total_steps: it defaults to the run's length");
  EXPECT_NO_THROW(at_step(cycle, 49, 0));
  EXPECT_THROW(at_step(cycle, 51, 0), ConfigError);
  // A phase without a step is over at once, where PyTorch divides by zero.
  EXPECT_DOUBLE_EQ(at_step(one_cycle_schedule({.total_steps = 100, .pct_start = 0.01}), 0), 0.1);
}

TEST(Schedule, InverseSqrtContinuesFromTheStepOfTheRun) {
  const Schedule behind =
      sequence_schedule({constant_schedule(), inverse_sqrt_schedule()}, {.milestones = {16}});
  EXPECT_DOUBLE_EQ(at_step(behind, 16), 0.1);
  EXPECT_DOUBLE_EQ(at_step(behind, 64), 0.05);
}

TEST(ScheduleOfParts, CountsTheStepsOfEach) {
  const Schedule parts =
      sequence_schedule({linear_schedule({.start_factor = 0}), polynomial_schedule(), cosine_schedule()},
                        {.milestones = {10, 30}});
  EXPECT_DOUBLE_EQ(at_step(parts, 5), 0.05);
  EXPECT_DOUBLE_EQ(at_step(parts, 10), 0.1);
  EXPECT_DOUBLE_EQ(at_step(parts, 20), 0.05) << "20 steps are its run";
  EXPECT_NEAR(at_step(parts, 65), 0.05, 1e-15) << "70 are left";
}

TEST(ScheduleOfParts, HoldsTheMomentumWhereAPartHasNone) {
  const Schedule cycle = one_cycle_schedule({.pct_start = 0.5, .base_momentum = 0.5, .max_momentum = 0.9});
  const auto momentum_at = [](const Schedule& schedule, std::int64_t step) {
    return schedule.momentum({.step = step, .total_steps = 40, .base_lr = 0.1});
  };
  const Schedule parts =
      sequence_schedule({constant_schedule(), cycle, step_schedule()}, {.milestones = {10, 20}});
  EXPECT_DOUBLE_EQ(momentum_at(parts, 3), 0.9) << "what the cycle begins with";
  EXPECT_DOUBLE_EQ(momentum_at(parts, 14), 0.5);
  EXPECT_DOUBLE_EQ(momentum_at(parts, 30), 0.9) << "what it has ended with";
  const Schedule cut = sequence_schedule(
      {one_cycle_schedule({.total_steps = 40, .pct_start = 0.5, .base_momentum = 0.5, .max_momentum = 0.9}),
       constant_schedule()},
      {.milestones = {20}});
  EXPECT_DOUBLE_EQ(momentum_at(cut, 35), 0.5);
  EXPECT_DOUBLE_EQ(momentum_at(with_warmup(cycle, {.warmup_steps = 10}), 4), 0.9);
  // A run that ends within its warm-up.
  EXPECT_DOUBLE_EQ(with_warmup(cycle, {.warmup_steps = 10}).momentum({.step = 0, .total_steps = 1}), 0.9);
  EXPECT_FALSE(sequence_schedule({constant_schedule()}, {}).momentum);
}

TEST(ScheduleOfParts, MustFitTogether) {
  const auto text = [](std::vector<Schedule> parts, std::vector<std::int64_t> milestones) {
    return error_text<ConfigError>([&] { sequence_schedule(parts, {.milestones = milestones}); });
  };
  const Schedule one = constant_schedule();
  EXPECT_EQ(text({}, {}), "sequence schedule: it has no parts; expected: at least one");
  EXPECT_EQ(text({one, one}, {}),
            "sequence schedule: 2 parts and 0 milestones; expected: one milestone fewer than parts");
  EXPECT_EQ(text({one, one, one}, {5, 5}),
            "sequence schedule: a milestone is not above the one before it; expected: increasing milestones");
  EXPECT_EQ(text({one, plateau_schedule()}, {5}),
            "sequence schedule: a part waits for a plateau; expected: parts that depend on the step alone");
  EXPECT_EQ(text({one, {}}, {5}), "sequence schedule: a part is empty; expected: a schedule");
}

TEST(Schedule, KeepsItsMomentumWhenCopied) {
  Schedule cycle = one_cycle_schedule({.cycle_momentum = true});
  Schedule copy = cycle;
  EXPECT_TRUE(copy.momentum);
  EXPECT_TRUE(copy.needs_momentum);
  Schedule plateau = plateau_schedule({.monitor = "train_loss", .mode = "min"});
  const Schedule warm = with_warmup(plateau, {.warmup_steps = 3});
  ASSERT_TRUE(warm.plateau.has_value());
  EXPECT_EQ(warm.plateau->monitor, "train_loss");
  EXPECT_NEAR(warm({.step = 3, .base_lr = 0.1, .plateaus = 2}), 0.001, 1e-17);
  copy = [](const SchedulePoint& at) { return at.base_lr; };
  EXPECT_FALSE(copy.momentum) << "another schedule";
}

// A rule without a momentum.
class PlainDescent : public Optimizer {
 public:
  explicit PlainDescent(ParameterGroups parameters) : Optimizer(std::move(parameters), 0.1) {}

 protected:
  void update(const Update&) override {}
};

TEST(Schedule, GivesAnOptimizerItsRatesAndItsMomentum) {
  const at::Tensor first = at::ones({1}), second = at::ones({1});
  Sgd sgd(ParameterGroups{{.parameters = {first}, .lr = 0.5}, {.parameters = {second}}},
          {.lr = 0.25, .momentum = 0.3});
  const SchedulePoint middle{.step = 4, .total_steps = 10};
  apply_schedule(one_cycle_schedule({.pct_start = 0.5}), middle, sgd);
  EXPECT_DOUBLE_EQ(sgd.lr(0), 0.5);
  EXPECT_DOUBLE_EQ(sgd.lr(1), 0.25);
  EXPECT_DOUBLE_EQ(sgd.momentum(), 0.85);
  apply_schedule(cosine_schedule(), middle, sgd);
  EXPECT_DOUBLE_EQ(sgd.momentum(), 0.85) << "left alone";

  PlainDescent plain({first});
  apply_schedule(one_cycle_schedule(), middle, plain);
  apply_schedule(one_cycle_schedule({.cycle_momentum = false}), middle, plain);
  EXPECT_EQ(error_text<ConfigError>(
                [&] { apply_schedule(one_cycle_schedule({.cycle_momentum = true}), middle, plain); }),
            "schedule: it changes the momentum, but the optimizer has none; expected: an optimizer with "
            "momentum or "
            "betas; set cycle_momentum = false to keep the momentum unchanged");
}

TEST(Schedule, MovesTheWeightDecayOfGroupsThatHaveOne) {
  Sgd optimizer(ParameterGroups({{.parameters = {at::zeros({1}).requires_grad_()}, .weight_decay = 0.04},
                                 {.parameters = {at::zeros({1}).requires_grad_()}, .weight_decay = 0}}),
                {.lr = 0.1});
  const Schedule schedule = with_warmup(with_weight_decay_end({}, 0.4), {.warmup_steps = 4});
  for (const auto& [step, decay] : {std::pair<std::int64_t, double>{0, 0.04},
                                    {2, 0.04 + 0.36 * (1 - std::sqrt(0.5)) / 2},
                                    {4, 0.22},
                                    {8, 0.4},
                                    {9, 0.4}}) {
    apply_schedule(schedule, {.step = step, .total_steps = 8}, optimizer);
    EXPECT_NEAR(optimizer.weight_decay(0), decay, 1e-15);
    EXPECT_EQ(optimizer.weight_decay(1), 0);
  }
  EXPECT_THROW(with_weight_decay_end({}, -1), ConfigError);
  EXPECT_THROW(apply_schedule(schedule, {.step = 0}, optimizer), ConfigError);  // the length is unknown
  Sgd without(ParameterGroups{at::zeros({1}).requires_grad_()}, {.lr = 0.1});
  EXPECT_THROW(apply_schedule(schedule, {.step = 0, .total_steps = 8}, without), ConfigError);
  EXPECT_THROW(sequence_schedule({schedule}, {}), ConfigError);
}

TEST(Schedule, RequiresItsLengthIfTheRunHasNone) {
  EXPECT_THROW(cosine_schedule()({.step = 0, .total_steps = 0, .base_lr = 0.1}), ConfigError);
  EXPECT_DOUBLE_EQ(cosine_schedule({.T_max = 10})({.step = 10, .total_steps = 0, .base_lr = 0.1}), 0.0);
}

TEST(PlateauCounter, RefusesSavedNumbersThatAreNotNumbers) {
  PlateauCounter counter({.mode = "min"});
  counter.observe(2);
  StateDict saved;
  counter.save(saved);
  for (const auto& item : saved.metadata) {
    StateDict broken = saved;
    broken.metadata["plateaus"] = "7";
    broken.metadata[item.first] = "two";
    EXPECT_NE(error_text<CheckpointError>([&] { counter.load(broken); }).find("'" + item.first + "': 'two'"),
              std::string::npos);
    EXPECT_EQ(counter.count(), 0) << "nothing has changed";
  }
}

}  // namespace
}  // namespace kindling
