#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "kindling/base/export.h"
#include "kindling/config/options.h"
#include "kindling/optim/schedule.h"

// Schedules that oscillate. Names and values are those of torch.optim.lr_scheduler; T_max and total_steps
// default to the length of the run (after the warm-up, within its part of a sequence). step counts from 0, b
// is base_lr. All throw ConfigError for options that are out of range or missing.
namespace kindling {

struct CosineScheduleOptions {
  std::optional<std::int64_t> T_max{};
  double eta_min = 0;
  static constexpr auto fields = kindling::fields(
      kindling::field(
          "T_max", &CosineScheduleOptions::T_max,
          {.doc = "steps until the minimum; absent: the rest of the run", .min = 1, .example = "100"}),
      kindling::field("eta_min", &CosineScheduleOptions::eta_min,
                      {.doc = "smallest learning rate", .min = 0}));
};
// eta_min + (b − eta_min)·(1 + cos(π·step / T_max)) / 2 (Loshchilov, Hutter, 2017); rises again after T_max.
KINDLING_API Schedule cosine_schedule(CosineScheduleOptions options = {});

struct CosineRestartsScheduleOptions {
  std::optional<std::int64_t> T_0{};  // must be set
  std::int64_t T_mult = 1;
  double eta_min = 0;
  static constexpr auto fields = kindling::fields(
      kindling::field("T_0", &CosineRestartsScheduleOptions::T_0,
                      {.doc = "steps until the first restart; required", .min = 1, .example = "10"}),
      kindling::field("T_mult", &CosineRestartsScheduleOptions::T_mult,
                      {.doc = "factor by which each period is longer than the one before", .min = 1}),
      kindling::field("eta_min", &CosineRestartsScheduleOptions::eta_min,
                      {.doc = "smallest learning rate", .min = 0}));
};
// The cosine over periods of T_0, T_0·T_mult, … steps, each starting from b (CosineAnnealingWarmRestarts).
KINDLING_API Schedule cosine_restarts_schedule(CosineRestartsScheduleOptions options);

struct OneCycleScheduleOptions {
  std::optional<double> max_lr{};  // absent: b, separately for each group
  std::optional<std::int64_t> total_steps{};
  double pct_start = 0.3;
  std::string anneal_strategy = "cos";
  std::optional<bool> cycle_momentum{};
  double base_momentum = 0.85;
  double max_momentum = 0.95;
  double div_factor = 25;
  double final_div_factor = 1e4;
  bool three_phase = false;
  static constexpr auto fields = kindling::fields(
      kindling::field("max_lr", &OneCycleScheduleOptions::max_lr,
                      {.doc = "largest learning rate; absent: the optimizer's", .min = 0, .example = "0.1"}),
      kindling::field(
          "total_steps", &OneCycleScheduleOptions::total_steps,
          {.doc = "steps of the cycle; absent: the rest of the run", .min = 1, .example = "1000"}),
      kindling::field("pct_start", &OneCycleScheduleOptions::pct_start,
                      {.doc = "fraction of the steps in which the rate rises", .min = 0, .max = 1}),
      kindling::field("anneal_strategy", &OneCycleScheduleOptions::anneal_strategy,
                      {.doc = "shape of the rise and fall", .choices = "cos|linear"}),
      kindling::field("cycle_momentum", &OneCycleScheduleOptions::cycle_momentum,
                      {.doc = "move the momentum in the opposite direction; absent: if the optimizer has one",
                       .example = "false"}),
      kindling::field("base_momentum", &OneCycleScheduleOptions::base_momentum,
                      {.doc = "momentum at the largest rate", .min = 0, .max = 1, .max_excluded = true}),
      kindling::field(
          "max_momentum", &OneCycleScheduleOptions::max_momentum,
          {.doc = "momentum at the start and at the end", .min = 0, .max = 1, .max_excluded = true}),
      kindling::field("div_factor", &OneCycleScheduleOptions::div_factor,
                      {.doc = "the initial rate is max_lr / div_factor", .min = 0, .min_excluded = true}),
      kindling::field(
          "final_div_factor", &OneCycleScheduleOptions::final_div_factor,
          {.doc = "the final rate is the initial rate / final_div_factor", .min = 0, .min_excluded = true}),
      kindling::field("three_phase", &OneCycleScheduleOptions::three_phase,
                      {.doc = "fall to the initial rate first, then to the final rate"}));
};
// Rises from max_lr / div_factor to max_lr and falls far below; the momentum moves the opposite way (Smith,
// Topin, 2018; OneCycleLR). The schedule throws ConfigError for a run that is longer than total_steps.
KINDLING_API Schedule one_cycle_schedule(OneCycleScheduleOptions options = {});

}  // namespace kindling
