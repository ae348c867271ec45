// The numbers of torch.optim.lr_scheduler, from fixtures/make_schedules.py and golden/make_golden.py.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "kindling/optim/cosine_schedules.h"
#include "kindling/optim/decay_schedules.h"

namespace kindling {
namespace {

constexpr double kReferenceLr = 0.1;
constexpr std::int64_t kReferenceSteps = 3000;
// The files have 12 and 14 digits; PyTorch multiplies most rates up step by step, which in 3,000 steps moves
// their last digits, to 1e-13 at most.
constexpr double kReferenceTolerance = 1e-12;

using Rows = std::vector<std::vector<std::string>>;

// The cells of a CSV file, whose lines may end in \r\n; the first row is the header.
Rows rows_of(const std::filesystem::path& file) {
  std::ifstream stream(file);
  Rows rows;
  for (std::string line; std::getline(stream, line);) {
    if (line.ends_with('\r')) line.pop_back();
    std::istringstream cells(line);
    auto& row = rows.emplace_back();
    for (std::string cell; std::getline(cells, cell, ',');) row.push_back(cell);
    if (!rows.empty()) row.resize(rows.front().size());  // an empty last cell
  }
  return rows;
}

std::filesystem::path optim_fixture(const char* name) {
  return std::filesystem::path(KINDLING_FIXTURES).parent_path().parent_path() / "optim" / "fixtures" / name;
}

// Compares every column but the first, which holds the steps.
void expect_rates(const std::map<std::string, Schedule>& schedules, const Rows& rows,
                  std::int64_t num_steps) {
  ASSERT_GT(rows.size(), 1u);
  const auto& header = rows.front();
  for (std::size_t column = 1; column < header.size(); ++column) {
    const std::string name = header[column].substr(0, header[column].find('.'));
    ASSERT_TRUE(schedules.contains(name)) << name;
    const Schedule& schedule = schedules.at(name);
    const bool is_momentum = header[column] != name;
    for (std::size_t row = 1; row < rows.size(); ++row) {
      if (rows[row].at(column).empty()) continue;
      const SchedulePoint at{
          .step = std::stoll(rows[row][0]), .total_steps = num_steps, .base_lr = kReferenceLr};
      EXPECT_NEAR(is_momentum ? schedule.momentum(at) : schedule(at), std::stod(rows[row][column]),
                  kReferenceTolerance)
          << header[column] << " at step " << at.step;
    }
  }
}

// A cycle that is shorter than the run of the reference, of which only its own steps are compared.
Schedule with_length(std::int64_t total_steps, OneCycleScheduleOptions options) {
  options.total_steps = total_steps;
  Schedule cycle = one_cycle_schedule(options);
  const auto alone = [](SchedulePoint at) {
    at.total_steps = 0;
    return at;
  };
  Schedule schedule = [=](const SchedulePoint& at) { return cycle(alone(at)); };
  schedule.momentum = [=](const SchedulePoint& at) { return cycle.momentum(alone(at)); };
  return schedule;
}

TEST(Schedule, RatesMatchTheGoldenCases) {
  const std::map<std::string, Schedule> schedules = {
      {"constant", constant_schedule({.factor = 0.3, .total_iters = 10})},
      {"step", step_schedule({.step_size = 30, .gamma = 0.1})},
      {"multistep", multistep_schedule({.milestones = {10, 40, 41}, .gamma = 0.5})},
      {"exponential", exponential_schedule({.gamma = 0.97})},
      {"linear", linear_schedule({.start_factor = 0.25, .end_factor = 0.9, .total_iters = 40})},
      {"cosine", cosine_schedule({.T_max = 100, .eta_min = 0.001})},
      {"cosine_restarts", cosine_restarts_schedule({.T_0 = 10, .T_mult = 2})},
      {"polynomial", polynomial_schedule({.total_iters = 80, .power = 2})},
      {"one_cycle", one_cycle_schedule({.max_lr = 0.5, .total_steps = 101})},
      {"warmup_cosine", with_warmup(cosine_schedule(), {.warmup_steps = 10, .warmup_start_factor = 0.01})}};
  const Rows rows = rows_of(std::filesystem::path(KINDLING_TESTS) / "golden/reference/schedules.csv");
  ASSERT_EQ(rows.size(), 101u);
  ASSERT_EQ(rows.front().size(), 11u);
  expect_rates(schedules, rows, 100);
}

TEST(Schedule, RatesAndMomentaMatchPyTorchForManyOptions) {
  const std::map<std::string, Schedule> schedules = {
      {"constant", constant_schedule({.factor = 0.25, .total_iters = 40})},
      {"step", step_schedule({.step_size = 7, .gamma = 0.9})},
      {"step_up", step_schedule({.step_size = 500, .gamma = 1.5})},
      {"multistep", multistep_schedule({.milestones = {90, 5, 30, 30}, .gamma = 0.7})},
      {"multistep_default", multistep_schedule({.milestones = {100}})},
      {"exponential", exponential_schedule({.gamma = 0.999})},
      {"exponential_zero", exponential_schedule({.gamma = 0})},
      {"linear", linear_schedule({.total_iters = 5})},
      {"linear_down", linear_schedule({.start_factor = 1, .end_factor = 0, .total_iters = 1000})},
      {"cosine_short", cosine_schedule({.T_max = 13, .eta_min = 0.002})},
      {"cosine_odd", cosine_schedule({.T_max = 1})},
      {"cosine_rising", cosine_schedule({.T_max = 700, .eta_min = 0.3})},
      {"restarts_1", cosine_restarts_schedule({.T_0 = 11, .eta_min = 0.01})},
      {"restarts_3", cosine_restarts_schedule({.T_0 = 2, .T_mult = 3})},
      {"restarts_long", cosine_restarts_schedule({.T_0 = 1, .T_mult = 2, .eta_min = 0.05})},
      {"polynomial", polynomial_schedule({.total_iters = 5})},
      {"polynomial_root", polynomial_schedule({.total_iters = 100, .power = 0.5})},
      {"polynomial_cube", polynomial_schedule({.total_iters = 2500, .power = 3})},
      {"one_cycle", one_cycle_schedule({.max_lr = 0.5})},
      {"one_cycle_three",
       with_length(97, {.max_lr = 1, .base_momentum = 0.6, .max_momentum = 0.9, .three_phase = true})},
      {"one_cycle_linear", with_length(120, {.max_lr = 0.2,
                                             .pct_start = 0.1,
                                             .anneal_strategy = "linear",
                                             .div_factor = 4,
                                             .final_div_factor = 50})},
      {"one_cycle_linear_three",
       with_length(1001,
                   {.max_lr = 0.2, .pct_start = 0.45, .anneal_strategy = "linear", .three_phase = true})},
      {"one_cycle_falling", with_length(50, {.max_lr = 0.3, .pct_start = 0})},
      {"one_cycle_rising", with_length(50, {.max_lr = 0.3, .pct_start = 1})},
      {"one_cycle_adam", with_length(60, {.max_lr = 0.3, .base_momentum = 0.5})},
      {"inverse_sqrt", inverse_sqrt_schedule()},
      {"inverse_sqrt_warm", with_warmup(inverse_sqrt_schedule(), {.warmup_steps = 25})},
      {"inverse_sqrt_scale", with_warmup(inverse_sqrt_schedule({.timescale = 400}), {.warmup_steps = 25})},
      {"warm_polynomial", with_warmup(polynomial_schedule({.total_iters = 60, .power = 2}),
                                      {.warmup_steps = 20, .warmup_start_factor = 0.05})},
      {"warm_restarts", with_warmup(cosine_restarts_schedule({.T_0 = 10, .T_mult = 2}), {.warmup_steps = 9})},
      {"sequence", sequence_schedule({linear_schedule({.start_factor = 0.1}),
                                      cosine_schedule({.T_max = 50, .eta_min = 0.01})},
                                     {.milestones = {20}})},
      {"sequence_of_four", sequence_schedule({constant_schedule({.factor = 0.5, .total_iters = 3}),
                                              exponential_schedule({.gamma = 0.9}),
                                              multistep_schedule({.milestones = {4, 8}, .gamma = 0.3}),
                                              step_schedule({.step_size = 100, .gamma = 0.8})},
                                             {.milestones = {10, 30, 50}})}};
  const Rows rows = rows_of(optim_fixture("schedules.csv"));
  ASSERT_EQ(rows.size(), 162u);
  EXPECT_EQ(rows.front().size(), schedules.size() + 7 + 1) << "seven of momenta, one of steps";
  expect_rates(schedules, rows, kReferenceSteps);
}

TEST(Schedule, ReducesOnAPlateauAsPyTorchDoes) {
  const std::map<std::string, PlateauScheduleOptions> cases = {
      {"default", {.mode = "min"}},
      {"half", {.factor = 0.5, .patience = 2}},
      {"max", {.mode = "max", .factor = 0.3, .patience = 1}},
      {"absolute", {.factor = 0.5, .patience = 0, .threshold = 0.05, .threshold_mode = "abs"}},
      {"max_absolute",
       {.mode = "max",
        .factor = 0.5,
        .patience = 3,
        .threshold = 0.2,
        .threshold_mode = "abs",
        .cooldown = 1}},
      {"cooldown", {.factor = 0.8, .patience = 1, .cooldown = 4}},
      {"min_lr", {.factor = 0.1, .patience = 0, .min_lr = 0.004}},
      {"eps", {.factor = 0.5, .patience = 0, .eps = 0.004}},
      {"rough", {.factor = 0.9, .patience = 2, .threshold = 0.3}}};
  const Rows rows = rows_of(optim_fixture("plateaus.csv"));
  ASSERT_EQ(rows.size(), 101u);
  ASSERT_EQ(rows.front().size(), cases.size() + 1);
  for (std::size_t column = 1; column < rows.front().size(); ++column) {
    const PlateauScheduleOptions& options = cases.at(rows.front()[column]);
    const Schedule schedule = plateau_schedule(options);
    PlateauCounter counter(options);
    for (std::size_t row = 1; row < rows.size(); ++row) {
      EXPECT_NEAR(schedule({.base_lr = kReferenceLr, .plateaus = counter.count()}),
                  std::stod(rows[row][column]), kReferenceTolerance)
          << rows.front()[column] << " in epoch " << row;
      // A training may be stopped after any epoch.
      StateDict saved;
      counter.save(saved);
      counter = PlateauCounter(options);
      counter.load(saved);
      counter.observe(std::stod(rows[row][0]));
    }
    EXPECT_GT(counter.count(), 0) << rows.front()[column];
  }
}

}  // namespace
}  // namespace kindling
