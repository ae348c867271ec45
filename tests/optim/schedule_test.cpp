#include "kindling/optim/schedule.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <map>
#include <sstream>

#include "kindling/base/error.h"
#include "support/shared_data.h"

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
}

// The cells of one line of a CSV file, whose lines may end in \r\n.
std::vector<std::string> cells(std::string line) {
  if (line.ends_with('\r')) line.pop_back();
  std::vector<std::string> cells;
  std::istringstream stream(line);
  for (std::string cell; std::getline(stream, cell, ',');) cells.push_back(cell);
  return cells;
}

// The learning rates of torch.optim.lr_scheduler, written with 12 digits.
TEST(Schedule, RatesAreThoseOfPyTorch) {
  KINDLING_REQUIRE_SHARED(path, "golden/reference/schedules.csv");
  const std::map<std::string, Schedule> schedules = {
      {"constant", constant_schedule({.factor = 0.3, .total_iters = 10})},
      {"step", step_schedule({.step_size = 30, .gamma = 0.1})},
      {"linear", linear_schedule({.start_factor = 0.25, .end_factor = 0.9, .total_iters = 40})},
      {"cosine", cosine_schedule({.T_max = 100, .eta_min = 0.001})},
      {"warmup_cosine", with_warmup(cosine_schedule(), {.warmup_steps = 10, .warmup_start_factor = 0.01})},
  };
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  const std::vector<std::string> header = cells(line);
  std::size_t compared = 0;
  // The file has a column "step" for the number of the step and another for the schedule of that name.
  for (std::int64_t step = 0; std::getline(file, line); ++step) {
    const std::vector<std::string> row = cells(line);
    ASSERT_EQ(std::stoll(row.at(0)), step);
    for (std::size_t column = 1; column < header.size(); ++column) {
      const auto schedule = schedules.find(header[column]);
      if (schedule == schedules.end()) continue;
      EXPECT_NEAR(at_step(schedule->second, step), std::stod(row.at(column)), 1e-8)
          << header[column] << " at step " << step;
      ++compared;
    }
  }
  EXPECT_EQ(compared, 500);
}

TEST(Schedule, WantsItsLengthWhereTheRunHasNone) {
  EXPECT_THROW(cosine_schedule()({.step = 0, .total_steps = 0, .base_lr = 0.1}), ConfigError);
  EXPECT_DOUBLE_EQ(cosine_schedule({.T_max = 10})({.step = 10, .total_steps = 0, .base_lr = 0.1}), 0.0);
}

}  // namespace
}  // namespace kindling
